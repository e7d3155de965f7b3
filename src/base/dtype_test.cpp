// Conversions of bf16 and fp16: every 16-bit value, and rounding held against the two neighbours in exact arithmetic.
#include "base/dtype.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <iterator>
#include <limits>

namespace iso {
namespace {

// The value of a 16-bit pattern from the definition of the format, in float64; Inf and NaN are left to the caller.
double exact_value(u16 bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                         : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

struct Bf16 {
  using Type = bf16;
  static constexpr int kExponentBits = 8, kMantissaBits = 7;
  static constexpr u16 kInfinity = 0x7f80;
};
struct F16 {
  using Type = f16;
  static constexpr int kExponentBits = 5, kMantissaBits = 10;
  static constexpr u16 kInfinity = 0x7c00;
};

template <class Format>
class Half : public testing::Test {
 public:
  using Type = typename Format::Type;

  static double value(u16 bits) { return exact_value(bits, Format::kExponentBits, Format::kMantissaBits); }

  // Checks that x becomes the nearest value, the even one of two equally near; overflow gives Inf.
  static testing::AssertionResult rounds_right(float x) {
    const u16 bits = from_float<Type>(x).bits;
    const u16 magnitude = bits & 0x7fff;
    if (std::isnan(x)) return check(magnitude > Format::kInfinity, x, bits, "NaN must stay NaN");
    if (std::signbit(x) != ((bits & 0x8000) != 0)) return check(false, x, bits, "sign");
    if (std::isinf(x)) return check(magnitude == Format::kInfinity, x, bits, "Inf must stay Inf");
    if (magnitude > Format::kInfinity) return check(false, x, bits, "a number became NaN");
    // Inf stands where the next value above the largest would be.
    const double a = std::abs(static_cast<double>(x)), here = std::abs(a - value(magnitude));
    const bool even = (magnitude & 1) == 0;
    for (const int step : {-1, 1}) {
      if (magnitude + step < 0 || magnitude + step > Format::kInfinity) continue;
      const double there = std::abs(a - value(static_cast<u16>(magnitude + step)));
      // Beyond the largest value everything is Inf.
      if (magnitude == Format::kInfinity && step == -1 && a >= value(magnitude)) continue;
      if (there < here || (there == here && !even)) return check(false, x, bits, "a neighbour is nearer");
    }
    return testing::AssertionSuccess();
  }

 private:
  static testing::AssertionResult check(bool good, float x, u16 bits, const char* what) {
    if (good) return testing::AssertionSuccess();
    return testing::AssertionFailure() << what << ": " << std::hexfloat << x << " became 0x" << std::hex << bits;
  }
};

using Formats = testing::Types<Bf16, F16>;
TYPED_TEST_SUITE(Half, Formats);

TYPED_TEST(Half, EveryValueIsExactInFloatAndComesBack) {
  for (u32 pattern = 0; pattern < 0x10000; ++pattern) {
    const u16 bits = static_cast<u16>(pattern), magnitude = bits & 0x7fff;
    const float x = to_float(typename TypeParam::Type{bits});
    const u16 back = from_float<typename TypeParam::Type>(x).bits;
    ASSERT_EQ(std::signbit(x), (bits & 0x8000) != 0) << bits;
    if (magnitude > TypeParam::kInfinity) {
      ASSERT_TRUE(std::isnan(x)) << bits;
      ASSERT_GT(back & 0x7fff, TypeParam::kInfinity) << bits;
      continue;
    }
    if (magnitude == TypeParam::kInfinity)
      ASSERT_TRUE(std::isinf(x)) << bits;
    else
      ASSERT_EQ(x, TestFixture::value(bits)) << bits;
    ASSERT_EQ(back, bits);
  }
}

// Around every value: the value, the midpoint to the next one, and the floats on either side of both.
TYPED_TEST(Half, RoundsToNearestEvenAroundEveryValue) {
  for (u32 magnitude = 0; magnitude < TypeParam::kInfinity; ++magnitude) {
    const double here = TestFixture::value(static_cast<u16>(magnitude));
    const double next = TestFixture::value(static_cast<u16>(magnitude + 1));
    for (const double near : {here, (here + next) / 2}) {
      const float x = static_cast<float>(near);
      const float infinity = std::numeric_limits<float>::infinity();
      for (const float y : {x, std::nextafter(x, infinity), std::nextafter(x, 0.0f)}) {
        ASSERT_TRUE(TestFixture::rounds_right(y));
        ASSERT_TRUE(TestFixture::rounds_right(-y));
      }
    }
  }
}

TYPED_TEST(Half, RoundsAnyFloat) {
  EXPECT_TRUE(rc::check("nearest, ties to even", [] {
    for (int n = 0; n < 1000; ++n) {
      const auto result = TestFixture::rounds_right(bits_float(*rc::gen::arbitrary<u32>()));
      if (!result) RC_FAIL(result.message());
    }
  }));
}

TYPED_TEST(Half, NanPayloadNeverTurnsIntoInfinity) {
  for (const u32 bits : {0x7f800001u, 0xff800001u, 0x7f80ffffu, 0x7fc00000u, 0xffffffffu})
    EXPECT_TRUE(TestFixture::rounds_right(bits_float(bits))) << std::hex << bits;
}

TEST(F16, LimitsOfTheFormat) {
  EXPECT_EQ(to_f16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_f16(0x1p-24f).bits, 1);
  EXPECT_EQ(to_f16(0x1p-25f).bits, 0);  // tie, to even
  EXPECT_EQ(to_f16(0x1.000002p-25f).bits, 1);
}

TEST(Bf16, LimitsOfTheFormat) {
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bf16(0x1.fep127f).bits, 0x7f7f);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(DType, SizesAndNames) {
  const struct {
    DType type;
    int size;
    const char* name;
  } expected[] = {{DType::f32, 4, "float32"}, {DType::bf16, 2, "bfloat16"}, {DType::f16, 2, "float16"},
                  {DType::f64, 8, "float64"}, {DType::i32, 4, "int32"},     {DType::i64, 8, "int64"}};
  static_assert(std::size(expected) == kNumDTypes);
  for (const auto& [type, size, name] : expected) {
    EXPECT_EQ(dtype_size(type), size);
    EXPECT_STREQ(dtype_name(type), name);
  }
}

}  // namespace
}  // namespace iso
