// The subcommands of `isoflash`, one cmd_<name>.cpp each, and the rules they share.
//
// Each add_* defines one CLI11 subcommand; its callback does the work and sets `exit_code`. A command that cannot go on
// because of what the user gave it throws UsageError; main.cpp prints it and leaves with kExitUsage. Results go to stdout,
// progress and errors to stderr.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace CLI {
class App;
}

namespace iso::tool {

// What every command promises to the shell.
inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;  // a check, a verification or a benchmark's own check found a wrong number
inline constexpr int kExitUsage = 2;        // the command could not run: bad arguments, unreadable file, refused problem

// `what()` is one plain line saying what is wrong; `hint`, if any, one line saying what to do.
struct UsageError : std::runtime_error {
  explicit UsageError(const std::string& what, std::string hint_line = {})
      : std::runtime_error(what), hint(std::move(hint_line)) {}
  std::string hint;
};

void add_demo(CLI::App& app, int& exit_code);
void add_pack(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_mask(CLI::App& app, int& exit_code);
void add_list(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

// All of them, in the order of `isoflash --help`, and the rules for their options (option_values.h).
void add_commands(CLI::App& app, int& exit_code);

}  // namespace iso::tool
