// isoflash: the command. Each subcommand lives in its cmd_*.cpp; this file parses, dispatches and maps failures to exit
// codes.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"
#include "spelling.h"

namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  isoflash demo                                  pack, run, check and draw: the whole tour\n"
    "  isoflash pack ml-100k.inter -o batch.safetensors\n"
    "  isoflash run batch.safetensors --backward      attention and gradients, verified, timed\n"
    "  isoflash mask --context 2 --history 10 --candidates 6\n"
    "  isoflash explain 1004                          what an error means and how to fix it\n"
    "\n"
    "Exit codes: 0 ok; 1 a check failed; 2 the command could not run (usage, files, refused problem).\n"
    "`isoflash COMMAND --help` tells more; so does docs/cli.md.";

// One plain line, then one that says what to do. Not by fmt::print, which throws if stderr takes nothing.
int usage_error(const std::string& what, const std::string& hint) {
  std::fputs(fmt::format("isoflash: {}\n", what).c_str(), stderr);
  if (!hint.empty()) std::fputs(fmt::format("hint: {}\n", hint).c_str(), stderr);
  return iso::tool::kExitUsage;
}

// A standard stream that the caller closed would lend its number to the next file opened, and output would go there. stdin
// and stderr become /dev/null; stdout is opened for reading, so that lost results are noticed.
void occupy_standard_streams() {
  for (int stream = 0; stream < 3; ++stream)
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF)
      (void)!open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR);
}

int output_lost() {
  return usage_error(fmt::format("cannot write to stdout: {}", std::strerror(errno)),
                     "check that its disk has room, or that its reader still reads");
}

std::string chosen_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? std::string() : " " + commands.front()->get_name();
}

// The name of the command nearest to what was typed: itself, if there is one.
std::string nearest_command(const CLI::App& app, const std::string& typed) {
  std::string nearest;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (nearest.empty() || iso::tool::edit_distance(typed, command->get_name()) < iso::tool::edit_distance(typed, nearest))
      nearest = command->get_name();
  return nearest;
}

int run(int argc, char** argv) {
  using namespace iso::tool;
  CLI::App app{"Exact attention for recommendation rankers: forward, backward, checked.", "isoflash"};
  app.set_version_flag("--version", fmt::format("isoflash {}", isoflash_version()));
  app.footer(kExamples);
  app.require_subcommand(1);

  int exit_code = kExitOk;
  add_commands(app, exit_code);

  if (argc == 1) {
    fmt::print("{}", app.help());
    return kExitUsage;
  }
  if (const std::string nearest = nearest_command(app, argv[1]); argv[1][0] != '-' && nearest != argv[1])
    return usage_error(fmt::format("there is no command '{}'", argv[1]),
                       fmt::format("the nearest is {}; isoflash --help lists all", nearest));
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::Success& asked) {  // --help and --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what(), fmt::format("isoflash{} --help shows what it takes", chosen_command(app)));
  } catch (const UsageError& error) {
    return usage_error(error.what(), error.hint);
  } catch (const std::bad_alloc&) {
    const iso::Error error = iso::make_error(iso::errors::OutOfMemory{.what = "isoflash" + chosen_command(app)});
    return usage_error(fmt::format("[{}] {}", error.id(), error.message()), fmt::format("isoflash explain {}", error.id()));
  } catch (const std::exception& error) {
    if (std::ferror(stdout)) return output_lost();
    return usage_error(fmt::format("[9001] unexpected failure: {}", error.what()),
                       "isoflash explain 9001; `isoflash doctor` prints what a report should contain");
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  const int exit_code = run(argc, argv);
  // An error was told already; its exit code stands.
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (lost && exit_code != iso::tool::kExitUsage) return output_lost();
  return exit_code;
}
