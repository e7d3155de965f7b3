#include "bench_report.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/core.h>

#include "chart.h"

namespace iso::tool {
namespace {

using nlohmann::json;

const char* short_dtype(DType dtype) { return dtype == DType::bf16 ? "bf16" : dtype == DType::f16 ? "f16" : "f32"; }

std::size_t workspace_per_thread(const BenchReport& report, const Measurement& m) {
  return m.subject->workspace_bytes(m.direction) / static_cast<std::size_t>(report.num_threads);
}

// Median over the rounds that both ran in. Rounds are short, so that the machine's speed is much the same within one.
double median_ratio(const Measurement& m, const Measurement& plain) {
  Measurement ratios;
  for (std::size_t n = 0; n < std::min(m.seconds.size(), plain.seconds.size()); ++n)
    ratios.seconds.push_back(m.seconds[n] / plain.seconds[n]);
  return ratios.median();
}

std::string label(const Measurement& m) {
  return fmt::format("{} {} {}", m.subject->name(), short_dtype(m.subject->dtype()), direction_name(m.direction));
}

}  // namespace

double BenchReport::speedup(const Measurement& m) const {
  if (!baseline.is_object() || !baseline.contains("results")) return 0;
  for (const json& old : baseline["results"])
    if (old.value("case", "") == m.subject->name() && old.value("dtype", "") == short_dtype(m.subject->dtype()) &&
        old.value("direction", "") == direction_name(m.direction) && old.contains("median_s"))
      return old["median_s"].get<double>() / m.median();
  return 0;
}

double BenchReport::times_plain(const Measurement& m) const {
  for (const Measurement& plain : measurements)
    if (plain.subject->name() == m.subject->plain() && plain.subject->dtype() == m.subject->dtype() &&
        plain.direction == m.direction)
      return median_ratio(m, plain);
  return 0;
}

std::string bench_table(const BenchReport& report) {
  std::string out = fmt::format("isoflash {} on {}, level {}, {} thread{}\n", isoflash_version(), report.machine.cpu_model,
                                report.level, report.num_threads, report.num_threads == 1 ? "" : "s");
  for (const auto& [bf16, peak] : report.peaks)
    out += fmt::format("peak of this machine for {}: {:.1f} GFLOP/s ({})\n", bf16 ? "bf16" : "f32 and f16", peak.gflops,
                       peak.instruction);
  const bool compared = report.baseline.is_object();
  const bool has_other_forms = std::any_of(report.measurements.begin(), report.measurements.end(),
                                           [&](const Measurement& m) { return report.times_plain(m) > 0; });
  out += fmt::format("\n{:<24} {:<6}{:<4}{:>5} {:>10} {:>17} {:>9} {:>7} {:>11}{}{}\n", "case", "dtype", "dir", "runs",
                     "median ms", "min-max ms", "GFLOP/s", "% peak", "KiB/thread", has_other_forms ? "  x plain" : "",
                     compared ? "  x baseline" : "");
  for (const Measurement& m : report.measurements) {
    const std::string spread = fmt::format("{:.3f}-{:.3f}", m.fastest() * 1e3, m.slowest() * 1e3);
    out += fmt::format("{:<24} {:<6}{:<4}{:>5} {:>10.3f} {:>17} {:>9.1f} {:>7.1f} {:>11.1f}", m.subject->name(),
                       short_dtype(m.subject->dtype()), direction_name(m.direction), m.seconds.size(), m.median() * 1e3,
                       spread, m.gflops(), 100 * m.gflops() / report.peak_of(m).gflops,
                       workspace_per_thread(report, m) / 1024.0);
    if (const double ratio = report.times_plain(m); ratio > 0 || (has_other_forms && compared))
      out += ratio > 0 ? fmt::format("{:>9.2f}", ratio) : fmt::format("{:>9}", "");
    if (const double speedup = report.speedup(m); speedup > 0) out += fmt::format("{:>12.2f}", speedup);
    out += "\n";
  }
  for (const auto& [name, finding] : report.failures) out += fmt::format("{:<24} FAILED its check: {}\n", name, finding);
  out +=
      "\nGFLOP/s counts visible (query, key) pairs only; KiB/thread is all the memory a call needs beyond its outputs.\n";
  if (has_other_forms)
    out += "x plain: time in relation to the same attention in its plain form, median over the rounds.\n";
  return out;
}

json bench_json(const BenchReport& report) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  json out{{"isoflash", isoflash_version()},
           {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
           {"machine",
            {{"cpu", report.machine.cpu_model},
             {"cores_usable", report.machine.cores_usable},
             {"memory_bytes", report.machine.memory_bytes},
             {"system", report.machine.system}}},
           {"cpu_level", report.level},
           {"threads", report.num_threads},
           {"peaks", json::array()},
           {"results", json::array()},
           {"failures", json::array()}};
  for (const auto& [bf16, peak] : report.peaks)
    out["peaks"].push_back(
        {{"elements", bf16 ? "bf16" : "f32, f16"}, {"instruction", peak.instruction}, {"gflops", peak.gflops}});
  for (const Measurement& m : report.measurements) {
    json result{{"case", m.subject->name()},
                {"dtype", short_dtype(m.subject->dtype())},
                {"direction", direction_name(m.direction)},
                {"kernel", m.subject->kernel()},
                {"visible_pairs", m.subject->visible_pairs()},
                {"useful_flops", m.subject->useful_flops(m.direction)},
                {"runs", m.seconds.size()},
                {"median_s", m.median()},
                {"min_s", m.fastest()},
                {"max_s", m.slowest()},
                {"gflops", m.gflops()},
                {"peak_share", m.gflops() / report.peak_of(m).gflops},
                {"workspace_bytes", m.subject->workspace_bytes(m.direction)},
                {"workspace_bytes_per_thread", workspace_per_thread(report, m)}};
    if (const double ratio = report.times_plain(m); ratio > 0) {
      result["plain_case"] = m.subject->plain();
      result["times_plain"] = ratio;
    }
    if (const double speedup = report.speedup(m); speedup > 0) result["speedup_over_baseline"] = speedup;
    out["results"].push_back(std::move(result));
  }
  for (const auto& [name, finding] : report.failures) out["failures"].push_back({{"case", name}, {"finding", finding}});
  return out;
}

std::string bench_svg(const BenchReport& report) {
  Chart chart{fmt::format("isoflash {}: {}, {}, {} threads", isoflash_version(), report.machine.cpu_model, report.level,
                          report.num_threads),
              "useful GFLOP/s, median",
              "peak of the product instruction",
              {"forward", "backward"},
              {}};
  for (const Measurement& m : report.measurements) {
    const double share = m.gflops() / report.peak_of(m).gflops;
    std::string note = fmt::format("{:.0f} ({:.0f} % of peak)", m.gflops(), 100 * share);
    if (const double ratio = report.times_plain(m); ratio > 0) note += fmt::format(", {:.2f} x plain", ratio);
    chart.bars.push_back({label(m), m.gflops(), report.peak_of(m).gflops, note, m.direction == Direction::backward});
  }
  return chart_svg(chart);
}

}  // namespace iso::tool
