// isoflash check: every backend of this machine against the oracle. The cases, the runner and the tolerances are those of
// the project's own conformance test (tests/conformance).
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "conformance/runner.h"
#include "isoflash/isoflash.h"
#include "option_values.h"
#include "terminal.h"

namespace iso::tool {
namespace {

using namespace conformance;

constexpr const char* kFooter =
    "Modes:\n"
    "  fwd          out and lse within tolerance of a float64 oracle\n"
    "  grad         dq, dk, dv and the gradients of sink and bias likewise\n"
    "  bounds       every element of every output written, nothing else touched, inputs unchanged\n"
    "  determinism  the same bits again: repeated, with 1, 2, 3 and 7 threads, with other candidates around\n"
    "  isolation    what a row may not see, NaN and Inf included, changes not one bit of its results\n"
    "\n"
    "Examples:\n"
    "  isoflash check                          all modes, on the CPU level in use\n"
    "  isoflash check --level all --quick      a small set on every CPU level\n"
    "  isoflash check --filter ranker --mode isolation\n"
    "  isoflash check --filter kv=paged        keys in pages; also blocks=, intervals=, new, sink=, bias=, splits=\n"
    "  isoflash check --case \"bwd bf16 packed q=16,5 k=80,9 h=4/2 d=64 context=2 candidates=16,5\"\n"
    "\n"
    "Exit codes: 0 all passed; 1 something failed, each with the line that runs it again; 2 usage.";

struct Options {
  std::string backend = "all", level, mode = "all", case_text, filter;
  u64 seed = 7;
  int random_cases = 40;
  bool quick = false, list = false;
};

struct Tally {
  int run = 0, failed = 0, unsupported = 0;
  double seconds = 0;
};

std::vector<NamedCase> chosen_cases(const Options& o) {
  if (!o.case_text.empty()) {
    const auto c = parse_case(o.case_text);
    if (!c) throw UsageError("--case: " + c.error(), "isoflash check --list shows how cases are written");
    return {{"given", true, *c}};
  }
  std::vector<NamedCase> cases;
  for (NamedCase& named : all_cases(o.seed, o.random_cases)) {
    const bool wanted =
        named.name.find(o.filter) != std::string::npos || print_case(named.spec).find(o.filter) != std::string::npos;
    if (wanted && (named.quick || !o.quick)) cases.push_back(std::move(named));
  }
  if (cases.empty()) throw UsageError("no case matches '" + o.filter + "'", "isoflash check --list shows all cases");
  return cases;
}

std::vector<Mode> chosen_modes(const Options& o) {
  if (o.mode == "all") return {kModes.begin(), kModes.end()};
  for (const Mode mode : kModes)
    if (o.mode == mode_name(mode)) return {mode};
  throw UsageError("--mode: there is no mode '" + o.mode + "'", "fwd, grad, bounds, determinism, isolation or all");
}

std::vector<std::string> chosen_levels(const Options& o) {
  if (o.level.empty()) return {isoflash_cpu_level_in_use()};
  std::vector<std::string> names;
  for (i32 n = 0; n < isoflash_cpu_level_count(); ++n)
    if (o.level == "all" ? isoflash_cpu_level_available(n) != 0 : o.level == isoflash_cpu_level_name(n))
      names.push_back(isoflash_cpu_level_name(n));
  if (names.empty()) throw UsageError("--level: there is no CPU level '" + o.level + "'", "isoflash doctor lists them");
  if (!level_available(names.front()))
    throw UsageError("--level: this processor cannot run '" + o.level + "'", "isoflash doctor lists what it can run");
  return names;
}

std::vector<Target> chosen_targets(const Options& o) {
  std::vector<Target> targets;
  for (i32 n = 0; n < isoflash_backend_count(); ++n) {
    const std::string name = isoflash_backend_name(n);
    if (o.backend != "all" && o.backend != name) continue;
    if (name != "cpu")
      targets.push_back({name, ""});
    else
      for (const std::string& level : chosen_levels(o)) targets.push_back({name, level});
  }
  if (targets.empty()) throw UsageError("--backend: there is no backend '" + o.backend + "'", "isoflash list shows them");
  return targets;
}

void list_cases(const std::vector<NamedCase>& cases) {
  std::size_t width = 0;
  for (const NamedCase& named : cases) width = std::max(width, named.name.size());
  for (const NamedCase& named : cases)
    fmt::print("{:{}}  {}  {}\n", named.name, width, named.quick ? "quick" : "     ", print_case(named.spec));
}

// Runs one mode over all cases; failures are printed as they come.
Tally run_mode(const std::vector<NamedCase>& cases, Mode mode, const Target& target, u64 seed) {
  Tally tally;
  Progress progress("isoflash check");
  const auto start = std::chrono::steady_clock::now();
  for (const NamedCase& named : cases) {
    progress.show(fmt::format("{} {} {} {}/{} {}", target.backend, target.level, mode_name(mode), tally.run + 1,
                              cases.size(), named.name));
    const Outcome outcome = run_case(named.spec, mode, target, seed);
    ++tally.run;
    if (!outcome.unsupported.empty()) ++tally.unsupported;
    if (outcome.failures.empty()) continue;
    ++tally.failed;
    fmt::print("FAILED {} {}: {}\n", named.name, mode_name(mode), outcome.failures.front());
    fmt::print("  run again: {}\n", rerun_line(named.spec, mode, target, seed));
  }
  tally.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return tally;
}

int check(const Options& o) {
  const std::vector<NamedCase> cases = chosen_cases(o);
  if (o.list) return list_cases(cases), kExitOk;
  const std::vector<Mode> modes = chosen_modes(o);
  const std::vector<Target> targets = chosen_targets(o);

  std::string table = fmt::format("{:8} {:12} {:12} {:>6} {:>7} {:>7} {:>12} {:>8}\n", "backend", "level", "mode", "cases",
                                  "passed", "failed", "unsupported", "seconds");
  int run = 0, failed = 0;
  for (const Target& target : targets) {
    for (const Mode mode : modes) {
      const Tally tally = run_mode(cases, mode, target, o.seed);
      table += fmt::format("{:8} {:12} {:12} {:6} {:7} {:7} {:12} {:8.2f}\n", target.backend,
                           target.level.empty() ? "-" : target.level, mode_name(mode), tally.run,
                           tally.run - tally.failed - tally.unsupported, tally.failed, tally.unsupported, tally.seconds);
      run += tally.run;
      failed += tally.failed;
    }
  }
  fmt::print("{}", table);
  if (failed == 0)
    fmt::print("all {} checks passed (seed {})\n", run, o.seed);
  else
    fmt::print("{} of {} checks failed (seed {}); each is listed above with the line that runs it again\n", failed, run,
               o.seed);
  return failed == 0 ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App& c = *app.add_subcommand("check", "Check every backend on this machine against the oracle");
  c.footer(kFooter);
  c.add_option("--backend", options->backend, "all, or a name that `isoflash list` shows [all]");
  c.add_option("--level", options->level, "CPU level: a name that `isoflash doctor` shows, or all [the one in use]");
  c.add_option("--mode", options->mode, "fwd, grad, bounds, determinism, isolation or all [all]");
  c.add_option("--case", options->case_text, "one case, as a failure or `isoflash check --list` prints it");
  c.add_option("--filter", options->filter,
               "only cases with this text in their name or line, as `isoflash check --list` prints them");
  c.add_option("--seed", options->seed, "seed of the data and of the random cases [7]")
      ->transform(whole_number<u64>(0, UINT64_MAX));
  c.add_option("--random", options->random_cases, "number of random cases besides the listed ones [40]")
      ->transform(whole_number(0, 100000));
  c.add_flag("--quick", options->quick, "only the quick subset");
  c.add_flag("--list", options->list, "print the cases and stop");
  c.callback([options, &exit_code] { exit_code = check(*options); });
}

}  // namespace iso::tool
