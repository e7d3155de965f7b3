// Every mode of every case for the level the library picks by itself, and the quick subset for every other level.
#include <gtest/gtest.h>

#include "conformance/runner.h"

namespace iso::conformance {
namespace {

constexpr u64 kSeed = 7;
constexpr int kRandomCases = 40;

class Conformance : public testing::TestWithParam<std::tuple<std::string, Mode>> {};

TEST_P(Conformance, Cpu) {
  const auto& [level, mode] = GetParam();
  const Target target{"cpu", level};
  for (const NamedCase& named : all_cases(kSeed, kRandomCases)) {
    if (!level.empty() && !named.quick) continue;
    const Outcome outcome = run_case(named.spec, mode, target, kSeed);
    EXPECT_EQ(outcome.unsupported, "") << named.name << ": the CPU backend serves every case";
    for (const std::string& failure : outcome.failures)
      ADD_FAILURE() << named.name << ": " << failure << "\n  run again: " << rerun_line(named.spec, mode, target, kSeed);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Conformance,
                         testing::Combine(testing::ValuesIn(runnable_levels()), testing::ValuesIn(kModes)),
                         [](const auto& info) {
                           const std::string level = std::get<0>(info.param);
                           return (level.empty() ? "picked" : level) + "_" + mode_name(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace iso::conformance
