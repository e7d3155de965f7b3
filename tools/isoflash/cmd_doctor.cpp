// `isoflash doctor`: what this machine offers, what isoflash will use of it and why, and what would make it faster.
#include <cstdlib>

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "isoflash/isoflash.h"
#include "machine.h"
#include "terminal.h"

namespace iso::tool {
namespace {

struct Findings {
  Machine machine;
  std::optional<CudaDriver> driver;
  std::string level, highest;  // CPU level in use; the highest this processor can run
  std::string forced;          // ISOFLASH_CPU_LEVEL, empty if not set
  std::vector<std::string> suggestions;
};

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

Findings examine() {
  Findings f;
  f.machine = this_machine();
  f.driver = cuda_driver();
  f.level = isoflash_cpu_level_in_use();
  for (int n = 0; n < isoflash_cpu_level_count(); ++n)
    if (isoflash_cpu_level_available(n)) f.highest = isoflash_cpu_level_name(n);
  if (const char* forced = std::getenv("ISOFLASH_CPU_LEVEL")) f.forced = forced;

  if (!f.forced.empty() && f.forced != f.level)
    f.suggestions.push_back(
        fmt::format("ISOFLASH_CPU_LEVEL={} is not a level that this library holds and this processor can run; "
                    "plans are refused. Use one of the available levels above, or unset it.",
                    f.forced));
  else if (f.level != f.highest)
    f.suggestions.push_back(
        fmt::format("ISOFLASH_CPU_LEVEL forces {} although {} is available: unset it for speed.", f.level, f.highest));
  if (f.machine.cores_usable < f.machine.cores_online)
    f.suggestions.push_back(
        fmt::format("This process may run on {} of {} cores (affinity or container limit); isoflash uses those.",
                    f.machine.cores_usable, f.machine.cores_online));
  if (f.level == "scalar" || f.level == "baseline")
    f.suggestions.push_back("No AVX2 is in use: expect a fraction of the speed of a processor made since 2015.");
  else if (f.level == "avx2" || f.level == "avx512")
    f.suggestions.push_back(
        "bf16 is converted to float32 at this level; processors with AMX (Sapphire Rapids and later) multiply it "
        "directly.");
  if (f.driver && !f.driver->gpus.empty())
    f.suggestions.push_back("A GPU is present but this version has no GPU backend: tensors must be in CPU memory.");
  return f;
}

void print_json(const Findings& f) {
  nlohmann::json levels = nlohmann::json::array(), gpus = nlohmann::json::array(), backends = nlohmann::json::array();
  for (int n = 0; n < isoflash_cpu_level_count(); ++n)
    levels.push_back({{"name", isoflash_cpu_level_name(n)}, {"available", isoflash_cpu_level_available(n) != 0}});
  for (int n = 0; n < isoflash_backend_count(); ++n) backends.push_back(isoflash_backend_name(n));
  nlohmann::json driver = nullptr;
  if (f.driver) {
    for (const Gpu& g : f.driver->gpus)
      gpus.push_back({{"name", g.name},
                      {"compute_capability", fmt::format("{}.{}", g.compute_major, g.compute_minor)},
                      {"memory_bytes", g.memory_bytes}});
    driver = {{"cuda_version", f.driver->version}, {"problem", f.driver->problem}, {"gpus", gpus}};
  }
  const nlohmann::json out{{"version", isoflash_version()},
                           {"system", f.machine.system},
                           {"cpu", f.machine.cpu_model},
                           {"cores_online", f.machine.cores_online},
                           {"cores_usable", f.machine.cores_usable},
                           {"memory_bytes", f.machine.memory_bytes},
                           {"memory_available_bytes", f.machine.memory_available_bytes},
                           {"cpu_levels", levels},
                           {"cpu_level_in_use", f.level},
                           {"cpu_level_forced", f.forced},
                           {"backends", backends},
                           {"cuda_driver", driver},
                           {"suggestions", f.suggestions}};
  fmt::print("{}\n", out.dump(2));
}

void print_gpu(const Findings& f) {
  if (!f.driver) {
    fmt::print("  driver          none (libcuda.so.1 is not installed)\n");
    return;
  }
  fmt::print("  driver          supports CUDA {}.{}\n", f.driver->version / 1000, f.driver->version % 1000 / 10);
  for (const Gpu& g : f.driver->gpus)
    fmt::print("  GPU             {} (compute capability {}.{}, {:.0f} GiB)\n", g.name, g.compute_major, g.compute_minor,
               gib(g.memory_bytes));
  if (!f.driver->problem.empty()) fmt::print("  GPU             none: {}\n", f.driver->problem);
}

void print_text(const Findings& f) {
  const Terminal terminal = terminal_of(stdout);
  fmt::print("{}\n", bold(terminal, fmt::format("isoflash {}", isoflash_version())));
  fmt::print("  system          {}\n", f.machine.system);
  fmt::print("\n{}\n", bold(terminal, "CPU"));
  fmt::print("  model           {}\n", f.machine.cpu_model);
  fmt::print("  cores           {} usable of {}\n", f.machine.cores_usable, f.machine.cores_online);
  fmt::print("  memory          {:.1f} GiB, {:.1f} GiB available\n", gib(f.machine.memory_bytes),
             gib(f.machine.memory_available_bytes));
  for (int n = 0; n < isoflash_cpu_level_count(); ++n) {
    const std::string name = isoflash_cpu_level_name(n);
    const char* state = name == f.level                   ? "in use"
                        : isoflash_cpu_level_available(n) ? "available"
                                                          : "not on this processor";
    fmt::print("  {:<15} {:<14} {}\n", n == 0 ? "levels" : "", name, state);
  }
  fmt::print("  ISOFLASH_CPU_LEVEL is {}\n", f.forced.empty() ? "not set" : "set to " + f.forced);

  fmt::print("\n{}\n", bold(terminal, "GPU"));
  print_gpu(f);
  fmt::print("  backend         none in this version\n");

  fmt::print("\n{}\n", bold(terminal, "What will be used"));
  const std::string reason = f.forced == f.level && !f.forced.empty() ? "ISOFLASH_CPU_LEVEL asks for it"
                                                                      : "the highest level this processor can run";
  fmt::print("  backend cpu, level {}: {}; {} threads\n", f.level, reason, f.machine.cores_usable);

  if (f.suggestions.empty()) return;
  fmt::print("\n{}\n", bold(terminal, "Suggestions"));
  for (const std::string& suggestion : f.suggestions) {
    bool first = true;
    for (const std::string& line : wrap(suggestion, std::min(terminal.columns, 100), "    ")) {
      fmt::print("{}\n", first ? "  - " + line.substr(4) : line);
      first = false;
    }
  }
}

}  // namespace

void add_doctor(CLI::App& app, int&) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App& c =
      *app.add_subcommand("doctor", "Show this machine's CPU level, GPU and driver, and what will be used and why.");
  c.add_flag("--json", *as_json, "as JSON");
  c.footer("Examples:\n  isoflash doctor\n  isoflash doctor --json");
  c.callback([as_json] {
    const Findings findings = examine();
    if (*as_json)
      print_json(findings);
    else
      print_text(findings);
  });
}

}  // namespace iso::tool
