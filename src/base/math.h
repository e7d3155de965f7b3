// Small integer helpers and the constants of base-2 softmax.
#pragma once

#include "base/compile.h"

namespace iso {
inline namespace ISO_TARGET {

inline constexpr double kLog2E = 1.4426950408889634074;  // log2(e)
inline constexpr double kLn2 = 0.69314718055994530942;   // ln(2)

template <class T>
ISO_HOST_DEVICE constexpr T min_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
ISO_HOST_DEVICE constexpr T max_of(T a, T b) {
  return a < b ? b : a;
}

// Smallest integer >= a / b, for a >= 0 and b > 0.
template <class T>
ISO_HOST_DEVICE constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// Smallest multiple of b that is >= a.
template <class T>
ISO_HOST_DEVICE constexpr T align_up(T a, T b) {
  return ceil_div(a, b) * b;
}

// Division rounding towards minus infinity, for b > 0.
template <class T>
ISO_HOST_DEVICE constexpr T floor_div(T a, T b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

}  // namespace ISO_TARGET
}  // namespace iso
