// The steps of exp2 (vector_math.h) that some processors have instructions for, without them.
#pragma once

#include "cpu/level/vectors.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// x minus the nearest integer; NaN for infinities.
HWY_INLINE Vec fraction(Vec x) { return hn::Sub(x, hn::Round(x)); }

// y * 2^(x - fraction) for y about 1; 0 where x is below -126.
HWY_INLINE Vec times_power(Vec y, Vec x, Vec fraction) {
  const auto tiny = hn::Lt(x, hn::Set(kFloat, -126.0f));
  const auto n = hn::ConvertTo(kInt, hn::Sub(x, fraction));
  const Vec scaled = hn::BitCast(kFloat, hn::Add(hn::BitCast(kInt, y), hn::ShiftLeft<23>(n)));
  // Adding to the exponent field can make a number of a NaN; the fraction still is one.
  return hn::IfThenZeroElse(tiny, hn::MulAdd(fraction, hn::Zero(kFloat), scaled));
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
