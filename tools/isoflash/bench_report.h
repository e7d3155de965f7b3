// What a benchmark found, as a table, as JSON and as a chart.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench_run.h"
#include "machine.h"
#include "peak.h"

namespace iso::tool {

struct BenchReport {
  Machine machine;
  int num_threads = 1;
  std::string level;           // CPU level in use
  std::map<bool, Peak> peaks;  // by "elements are bf16"
  std::vector<Measurement> measurements;
  std::vector<std::pair<std::string, std::string>> failures;  // case and dtype, what the check found
  nlohmann::json baseline;                                    // an earlier report, or null

  const Peak& peak_of(const Measurement& m) const { return peaks.at(m.subject->dtype() == DType::bf16); }
  // How many times as fast as in the baseline; 0 if that has no such measurement.
  double speedup(const Measurement& m) const;
  // Time in relation to that of the same case in its plain form, round by round; 0 if that was not measured.
  double times_plain(const Measurement& m) const;
};

std::string bench_table(const BenchReport& report);
nlohmann::json bench_json(const BenchReport& report);
std::string bench_svg(const BenchReport& report);

}  // namespace iso::tool
