// `isoflash bench`: speed of checked cases, against the machine's own limit and against an earlier run.
#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "bench_case.h"
#include "bench_report.h"
#include "commands.h"
#include "option_values.h"
#include "terminal.h"
#include "usage_error.h"
#include "write_file.h"

namespace iso::tool {
namespace {

struct BenchOptions {
  std::vector<std::string> cases;
  std::vector<std::string> dtypes{"bf16", "f32"};
  std::string batch, direction = "both", json, svg, baseline;
  int threads = 0;
  bool list = false;
  TimingRules timing;
};

DType dtype_named(const std::string& name) {
  return name == "bf16" ? DType::bf16 : name == "f16" ? DType::f16 : DType::f32;
}

void save(const std::string& path, const std::string& content) {
  write_file(path, content);
  fmt::print(stderr, "wrote {}\n", path);
}

nlohmann::json read_baseline(const std::string& path) {
  if (path.empty()) return nullptr;
  std::ifstream file(path);
  const nlohmann::json baseline = nlohmann::json::parse(file, nullptr, false);
  if (!baseline.is_object() || !baseline.contains("results"))
    throw UsageError(path + " is not a report of isoflash bench", "write one with isoflash bench --json FILE");
  return baseline;
}

// The chosen cases in table order; all if none is named.
std::vector<const BenchCase*> chosen(const BenchOptions& o) {
  std::vector<const BenchCase*> out;
  for (const BenchCase& c : bench_cases())
    if (o.cases.empty() || std::find(o.cases.begin(), o.cases.end(), c.name) != o.cases.end()) out.push_back(&c);
  return out;
}

std::vector<std::unique_ptr<Subject>> make_subjects(const BenchOptions& o, int threads, Progress& progress) {
  std::vector<std::unique_ptr<Subject>> subjects;
  if (!o.batch.empty()) {
    Batch batch = value_or_usage_error(read_batch(o.batch));
    std::array<Batch, kInputSets> sets{copy_batch(batch), copy_batch(batch), std::move(batch)};
    const std::size_t slash = o.batch.rfind('/');
    const std::string name = slash == std::string::npos ? o.batch : o.batch.substr(slash + 1);
    subjects.push_back(std::make_unique<Subject>(name, "", std::move(sets), isoflash::PlanOptions{.num_threads = threads}));
    if (o.direction != "fwd" && !subjects.front()->has_backward())
      throw UsageError(name + " has no backward: it lacks dout, or its keys lie in pages or a cache",
                       "use --direction fwd");
    return subjects;
  }
  for (const BenchCase* c : chosen(o))
    for (const std::string& dtype : o.dtypes) {
      progress.show(fmt::format("making {} {}", c->name, dtype));
      std::array<Batch, kInputSets> sets;
      for (int n = 0; n < kInputSets; ++n) sets[n] = make_bench_batch(*c, dtype_named(dtype), 1 + n);
      const isoflash::PlanOptions options{.num_threads = threads, .num_splits = c->num_splits};
      subjects.push_back(std::make_unique<Subject>(c->name, c->plain, std::move(sets), options));
    }
  return subjects;
}

void print_cases() {
  for (const BenchCase& c : bench_cases())
    fmt::print("{:<24} {}; {} query heads, {} KV heads, head_dim {}\n", c.name, c.about, c.num_heads_q, c.num_heads_kv,
               c.head_dim);
}

void bench(const BenchOptions& o, int& exit_code) {
  if (o.list) return print_cases();
  BenchReport report;
  report.machine = this_machine();
  report.num_threads = o.threads > 0 ? o.threads : report.machine.cores_usable;
  report.level = isoflash_cpu_level_in_use();
  report.baseline = read_baseline(o.baseline);

  Progress progress("isoflash bench");
  const auto subjects = make_subjects(o, report.num_threads, progress);
  for (const auto& subject : subjects) {
    const std::string name = fmt::format("{} {}", subject->name(), dtype_name(subject->dtype()));
    const auto checked = [&](i64 done, i64 total) {
      progress.show(fmt::format("checking {}: {} of {}", name, done, total));
    };
    if (const std::string finding = subject->check(o.direction != "fwd" && subject->has_backward(), checked);
        !finding.empty()) {
      report.failures.emplace_back(name, finding);
      exit_code = kExitCheckFailed;
      continue;  // the speed of wrong numbers is of no interest
    }
    for (const Direction direction : {Direction::forward, Direction::backward})
      if ((o.direction == "both" || o.direction == direction_name(direction)) &&
          (direction == Direction::forward || subject->has_backward()))
        report.measurements.push_back({subject.get(), direction, {}});
  }

  const auto note_peaks = [&] {
    for (const Measurement& m : report.measurements) {
      const bool bf16 = m.subject->dtype() == DType::bf16;
      if (report.peaks.contains(bf16)) continue;
      progress.show("measuring the machine's peak");
      report.peaks[bf16] = measure_peak(report.level, bf16, report.num_threads);
    }
  };
  note_peaks();
  measure(report.measurements, o.timing, [&](const std::string& state) { progress.show(state); });
  // Once more: the limit is the best of before and after.
  const std::map<bool, Peak> before = std::exchange(report.peaks, {});
  note_peaks();
  for (auto& [bf16, peak] : report.peaks) peak.gflops = std::max(peak.gflops, before.at(bf16).gflops);

  progress.clear();
  fmt::print("{}", bench_table(report));
  if (!o.json.empty()) save(o.json, bench_json(report).dump(2) + "\n");
  if (!o.svg.empty()) save(o.svg, bench_svg(report));
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App& c =
      *app.add_subcommand("bench", "Measure speed: each case checked first, then timed in turns with the others.");
  std::vector<std::string> names;
  for (const BenchCase& bench_case : bench_cases()) names.push_back(bench_case.name);
  auto* cases = c.add_option("--case", o->cases, "run only this case; may be repeated")->check(CLI::IsMember(names));
  c.add_option("--batch", o->batch, "run a batch file of isoflash pack instead")->excludes(cases);
  c.add_flag("--list", o->list, "list the cases");
  c.add_option("--direction", o->direction, "what to time")
      ->check(CLI::IsMember({"fwd", "bwd", "both"}))
      ->capture_default_str();
  c.add_option("--dtype", o->dtypes, "element type of the cases; may be repeated [bf16 f32]")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  c.add_option("--threads", o->threads, "threads; 0: one per usable core")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  c.add_option("--min-time", o->timing.min_seconds, "seconds of timed runs, at least, for each line")
      ->check(CLI::Validator(
          [](const std::string& text) {  // written so that NaN, which would never end, is refused too
            double seconds = -1;
            const bool good = CLI::detail::lexical_cast(text, seconds) && seconds >= 0 && seconds <= 3600;
            return good ? std::string() : "Value " + text + " not in range 0 to 3600";
          },
          "FLOAT in [0 - 3600]"))
      ->capture_default_str();
  c.add_option("--min-runs", o->timing.min_runs, "timed runs, at least, for each line")
      ->transform(whole_number(1, 1'000'000))
      ->capture_default_str();
  c.add_option("--json", o->json, "write the report as JSON");
  c.add_option("--svg", o->svg, "write a chart");
  c.add_option("--baseline", o->baseline, "JSON of an earlier run to compare with");
  c.footer(
      "Exit code 1 if a case fails its check; its speed is not printed.\n\n"
      "Examples:\n"
      "  isoflash bench --case dense --json before.json\n"
      "  isoflash bench --case dense --baseline before.json --svg dense.svg\n"
      "  isoflash bench --case dense --case dense-blocks --case dense-paged16    what the other forms cost\n"
      "  isoflash bench --batch batch.safetensors --direction fwd --threads 1");
  c.callback([o, &exit_code] { bench(*o, exit_code); });
}

}  // namespace iso::tool
