// The kernels of src/kernels/common in the emulator against float64.
#include <gtest/gtest.h>

#include "common_kernels/checks.h"
#include "common_kernels/emulator_machine.h"
#include "kernels/common/rows.h"

namespace iso::test {
namespace {

constexpr u64 kSeeds = 2;

TEST(CommonKernels, WidenIsExact) {
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    const f16 x{static_cast<u16>(bits)};
    const bf16 y{static_cast<u16>(bits)};
    ASSERT_EQ(float_bits(widen(x)), float_bits(to_float(x))) << bits;
    ASSERT_EQ(float_bits(widen(y)), float_bits(to_float(y))) << bits;
  }
}

class EmulatedCommonKernels : public testing::TestWithParam<Case> {
 protected:
  using Check = std::string (*)(Machine&, const Case&, const std::string&);

  void run(Check check, std::initializer_list<const char*> variants) {
    EmulatorMachine machine;
    for (const char* variant : variants)
      for (machine.config.seed = 1; machine.config.seed <= kSeeds; ++machine.config.seed)
        EXPECT_EQ(check(machine, GetParam(), variant), "") << variant << ", seed " << machine.config.seed;
  }
};

TEST_P(EmulatedCommonKernels, BwdPreprocess) { run(check_bwd_preprocess, {"bf16", "f16"}); }
TEST_P(EmulatedCommonKernels, DqConvert) { run(check_dq_convert, {"bf16", "f16"}); }
TEST_P(EmulatedCommonKernels, SplitCombine) { run(check_split_combine, {"f32_bf16", "f32_f16", "bf16", "f16"}); }

// Without their one synchronisation, the wait for the grid before, the kernels read what may not be there yet.
TEST(EmulatedCommonKernelsMutation, EveryRemovedCallIsReported) {
  const Case c = small_cases().front();
  const std::pair<std::string (*)(Machine&, const Case&, const std::string&), const char*> kernels[] = {
      {check_bwd_preprocess, "bf16"}, {check_dq_convert, "bf16"}, {check_split_combine, "f32_bf16"}};
  for (const auto& [check, variant] : kernels) {
    EmulatorMachine machine;
    machine.config.programmatic = machine.inputs_by_grid_before = true;
    std::vector<emu::SyncSite> sites;
    machine.config.record_sites = &sites;
    ASSERT_EQ(check(machine, c, variant), "");
    machine.config.record_sites = nullptr;
    ASSERT_EQ(sites.size(), 1u);
    machine.config.remove_site = &sites[0];
    EXPECT_NE(check(machine, c, variant), "") << sites[0].instruction << " at " << emu::name(sites[0].at);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, EmulatedCommonKernels, testing::ValuesIn(small_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace iso::test
