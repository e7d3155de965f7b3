// The tolerance model lets rounding pass and nothing else.
#include "conformance/tolerance.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace iso::conformance {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string verdict(DType dtype, std::vector<double> truth, std::vector<float> yardstick, std::vector<float> got) {
  return compare("out", dtype, truth, yardstick, got);
}

TEST(Tolerance, OneRoundingPasses) {
  EXPECT_EQ(verdict(DType::bf16, {1, 2}, {1, 2}, {1, 2 + 0x1p-8f}), "");
  EXPECT_EQ(verdict(DType::f32, {1, 2}, {1, 2}, {1.000001f, 2}), "");
  EXPECT_EQ(verdict(DType::f32, {}, {}, {}), "");
}

TEST(Tolerance, TwiceTheYardstickPassesAndMoreFails) {
  EXPECT_EQ(verdict(DType::f16, {1, 1}, {1.1f, 1}, {1.2f, 1}), "");
  EXPECT_NE(verdict(DType::f16, {1, 1}, {1.1f, 1}, {1.21f, 1}), "");
}

TEST(Tolerance, SystematicErrorFailsBelowAWideMaximum) {
  std::vector<double> truth(100, 1.0);
  std::vector<float> yardstick(100, 1.0f), got(100, 1.05f);
  yardstick[3] = 1.1f;  // a single wide error
  EXPECT_NE(verdict(DType::bf16, truth, yardstick, got), "");
}

TEST(Tolerance, UnavoidableErrorIsAdded) {
  const std::vector<double> truth = {0, 0}, unavoidable = {1e-6, 1e-6};
  const std::vector<float> yardstick = {0, 0};
  EXPECT_EQ(compare("dq", DType::f32, truth, yardstick, std::vector<float>{9e-7f, 0}, unavoidable), "");
  EXPECT_NE(compare("dq", DType::f32, truth, yardstick, std::vector<float>{9e-7f, 0}), "");
  EXPECT_NE(compare("dq", DType::f32, truth, yardstick, std::vector<float>{2e-6f, 0}, unavoidable), "");
}

TEST(Tolerance, NonFinitePlacesMustAgree) {
  EXPECT_EQ(verdict(DType::f32, {-kInf, 1}, {-kInf, 1}, {-kInf, 1}), "");
  EXPECT_NE(verdict(DType::f32, {-kInf, 1}, {-kInf, 1}, {kInf, 1}), "");
  EXPECT_NE(verdict(DType::f32, {-kInf, 1}, {-kInf, 1}, {-88, 1}), "");
  EXPECT_NE(verdict(DType::f32, {0, 1}, {0, 1}, {kNan, 1}), "");
  EXPECT_NE(verdict(DType::f32, {kNan, 1}, {kNan, 1}, {0, 1}), "");
}

}  // namespace
}  // namespace iso::conformance
