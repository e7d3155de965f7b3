// The kernels of src/kernels/common on a GPU: the cases that the emulator runs too, and larger ones.
#include <gtest/gtest.h>

#include "common_kernels/checks.h"
#include "gpu/gpu.h"

namespace iso::test {
namespace {

class GpuCommonKernels : public testing::TestWithParam<Case> {
 protected:
  using Check = std::string (*)(Machine&, const Case&, const std::string&);

  void run(Check check, std::initializer_list<const char*> variants) {
    static const Expected<std::unique_ptr<Gpu>> gpu = Gpu::open();
    ASSERT_TRUE(gpu) << gpu.error().message();
    for (const char* variant : variants) EXPECT_EQ(check(**gpu, GetParam(), variant), "") << variant;
  }
};

TEST_P(GpuCommonKernels, BwdPreprocess) { run(check_bwd_preprocess, {"bf16", "f16"}); }
TEST_P(GpuCommonKernels, DqConvert) { run(check_dq_convert, {"bf16", "f16"}); }
TEST_P(GpuCommonKernels, SplitCombine) { run(check_split_combine, {"f32_bf16", "f32_f16", "bf16", "f16"}); }

std::vector<Case> all_cases() {
  std::vector<Case> cases = small_cases();
  for (Case& c : large_cases()) cases.push_back(std::move(c));
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuCommonKernels, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace iso::test
