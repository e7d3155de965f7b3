// No SIMD: Highway's one-lane target, plain C++ for any processor (its 128-bit emulation is switched off on GCC before 12.3).
#pragma once

#define HWY_COMPILE_ONLY_SCALAR
#include "cpu/level/powers_highway.h"
#include "cpu/level/vectors.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// dst[c][r] = src[r][c] for r < rows, c < columns.
inline void transpose(const float* src, i64 ld_src, i64 rows, i64 columns, float* dst, i64 ld_dst) {
  for (i64 c = 0; c < columns; ++c)
    for (i64 r = 0; r < rows; ++r) dst[c * ld_dst + r] = src[r * ld_src + c];
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
