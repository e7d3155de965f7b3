// SIMD by Google Highway in static-dispatch form: the compiler flags of the level choose the instructions.
#pragma once

#include "cpu/level/powers_highway.h"
#include "cpu/level/vectors.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// dst[c][r] = src[r][c] for r < rows, c < columns, both rounded up to 4 (the padding of src must be readable, that of dst
// writable), in blocks of 4 x 4.
inline void transpose(const float* HWY_RESTRICT src, i64 ld_src, i64 rows, i64 columns, float* HWY_RESTRICT dst,
                      i64 ld_dst) {
  const hn::FixedTag<float, 4> four;
  const auto block = [&](i64 r, i64 c) {
    const float* s = src + r * ld_src + c;
    const auto a = hn::LoadU(four, s), b = hn::LoadU(four, s + ld_src);
    const auto e = hn::LoadU(four, s + 2 * ld_src), f = hn::LoadU(four, s + 3 * ld_src);
    const auto ae_low = hn::InterleaveLower(four, a, e), ae_high = hn::InterleaveUpper(four, a, e);
    const auto bf_low = hn::InterleaveLower(four, b, f), bf_high = hn::InterleaveUpper(four, b, f);
    float* d = dst + c * ld_dst + r;
    hn::StoreU(hn::InterleaveLower(four, ae_low, bf_low), four, d);
    hn::StoreU(hn::InterleaveUpper(four, ae_low, bf_low), four, d + ld_dst);
    hn::StoreU(hn::InterleaveLower(four, ae_high, bf_high), four, d + 2 * ld_dst);
    hn::StoreU(hn::InterleaveUpper(four, ae_high, bf_high), four, d + 3 * ld_dst);
  };
  for (i64 r = 0; r < rows; r += 4)
    for (i64 c = 0; c < columns; c += 4) block(r, c);
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
