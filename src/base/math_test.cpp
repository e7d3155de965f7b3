#include "base/math.h"

#include <gtest/gtest.h>

#include <cmath>

namespace iso {
namespace {

TEST(Math, DivisionsRoundAsNamed) {
  for (int a = -20; a <= 20; ++a) {
    for (int b = 1; b <= 7; ++b) {
      EXPECT_EQ(floor_div(a, b), static_cast<int>(std::floor(static_cast<double>(a) / b))) << a << " / " << b;
      if (a < 0) continue;
      EXPECT_EQ(ceil_div(a, b), static_cast<int>(std::ceil(static_cast<double>(a) / b))) << a << " / " << b;
      EXPECT_EQ(align_up(a, b) % b, 0);
      EXPECT_LT(align_up(a, b) - a, b);
      EXPECT_GE(align_up(a, b), a);
    }
  }
}

TEST(Math, ConstantsOfBaseTwo) {
  EXPECT_DOUBLE_EQ(kLog2E, std::log2(std::exp(1.0)));
  EXPECT_DOUBLE_EQ(kLn2, std::log(2.0));
}

}  // namespace
}  // namespace iso
