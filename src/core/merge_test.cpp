// Weights and lse of a merged row against their definition in float64.
#include "core/merge.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace iso {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
struct StandardMath {
  using Real = T;
  static T exp(T x) { return std::exp(x); }
  static T log(T x) { return std::log(x); }
};

template <class T = double>
MergedRow<StandardMath<T>> merged(const std::vector<float>& lses) {
  return MergedRow<StandardMath<T>>(static_cast<i32>(lses.size()), [&](i32 n) { return lses[n]; });
}

template <class T>
void weights_are_shares_of_the_sum(double tolerance) {
  EXPECT_TRUE(rc::check("weights are shares of the sum, lse its logarithm", [=] {
    std::vector<float> lses;
    const float base = static_cast<float>(*rc::gen::inRange(-2000, 2000)) / 4;
    for (int n = *rc::gen::inRange(1, 9); n > 0; --n)
      lses.push_back(*rc::gen::inRange(0, 4) == 0 ? kLseOfNoKey : base + static_cast<float>(*rc::gen::inRange(0, 80)) / 8);
    long double sum = 0;
    for (const float lse : lses) sum += std::exp(static_cast<long double>(lse) - base);
    const auto row = merged<T>(lses);
    double total = 0;
    for (const float lse : lses) {
      const double weight = row.weight(lse);
      const double share = sum == 0 ? 0 : static_cast<double>(std::exp(static_cast<long double>(lse) - base) / sum);
      total += weight;
      RC_ASSERT(std::abs(weight - share) < tolerance);
    }
    if (sum == 0) {
      RC_ASSERT(row.lse() == kLseOfNoKey);
      RC_ASSERT(total == 0.0);
    } else {
      const double lse = static_cast<double>(base + std::log(sum));
      RC_ASSERT(std::abs(row.lse() - lse) <= 1e-6 * std::max(1.0, std::abs(lse)));
      RC_ASSERT(std::abs(total - 1) < tolerance);
    }
  }));
}

TEST(MergedRow, WeightsAreSharesOfTheSum) {
  weights_are_shares_of_the_sum<double>(1e-13);
  weights_are_shares_of_the_sum<float>(1e-5);
}

TEST(MergedRow, OnePartIsUnchanged) {
  for (const float lse : {-1e30f, -700.125f, 0.1f, 88.5f, 1e30f}) {
    EXPECT_EQ(merged({lse}).lse(), lse);
    EXPECT_EQ(merged({lse}).weight(lse), 1.0);
    EXPECT_EQ(merged({kLseOfNoKey, lse, kLseOfNoKey}).lse(), lse);
    EXPECT_EQ(merged({kLseOfNoKey, lse}).weight(kLseOfNoKey), 0.0);
  }
}

TEST(MergedRow, NoKeys) {
  for (const std::vector<float>& lses : {std::vector<float>{}, {kLseOfNoKey}, {kLseOfNoKey, kLseOfNoKey}}) {
    EXPECT_EQ(merged(lses).lse(), kLseOfNoKey);
    EXPECT_EQ(merged(lses).weight(kLseOfNoKey), 0.0);
  }
}

// Wherever it stands: a maximum that loses NaN would hide it.
TEST(MergedRow, NanAndInfinityReachTheResult) {
  for (const float bad : {kNan, kInfinity}) {
    for (const std::vector<float>& lses :
         {std::vector<float>{bad}, {bad, 1}, {1, bad}, {1, bad, 2}, {bad, kLseOfNoKey}, {kLseOfNoKey, bad}, {bad, bad}}) {
      EXPECT_TRUE(std::isnan(merged(lses).lse())) << bad << " in one of " << lses.size();
      EXPECT_TRUE(std::isnan(merged(lses).weight(bad))) << bad << " in one of " << lses.size();
    }
  }
}

TEST(MergedWeight, IsTheExponentialOfTheDifference) {
  EXPECT_EQ(merged_weight<StandardMath<double>>(2, 2), 1.0);
  EXPECT_NEAR(merged_weight<StandardMath<double>>(1, 3), std::exp(-2), 1e-15);
  EXPECT_EQ(merged_weight<StandardMath<double>>(kLseOfNoKey, 3), 0.0);
  EXPECT_EQ(merged_weight<StandardMath<double>>(kLseOfNoKey, kLseOfNoKey), 0.0);
  EXPECT_EQ(merged_weight<StandardMath<double>>(kLseOfNoKey, kNan), 0.0) << "a part without keys gets no gradient";
  EXPECT_TRUE(std::isnan(merged_weight<StandardMath<double>>(1, kNan)));
}

}  // namespace
}  // namespace iso
