// SIMD by Highway, with a transpose of 16 x 16 blocks and the instructions for powers of two.
#pragma once

#include <immintrin.h>

#include "cpu/level/vectors.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// The steps of exp2 (vector_math.h), as in powers_highway.h.
HWY_INLINE Vec fraction(Vec x) { return Vec{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEAREST_INT)}; }
HWY_INLINE Vec times_power(Vec y, Vec x, Vec fraction) {
  // Results below the smallest normal number are zeros: the products would be slow with them.
  const __mmask16 not_tiny = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return Vec{_mm512_maskz_scalef_ps(not_tiny, y.raw, _mm512_sub_ps(x.raw, fraction.raw))};
}

// The transpose of 16 rows of 16 words, in four rounds of 16 shuffles: words, pairs of words, then quarters of vectors.
inline void transpose_block(const float* src, i64 ld_src, float* dst, i64 ld_dst) {
  __m512 a[16], b[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) a[r] = _mm512_loadu_ps(src + r * ld_src);
#pragma GCC unroll 8
  for (int r = 0; r < 16; r += 2) {
    b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
    b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
  }
  // a[4n + c] holds column 4q + c of rows 4n .. 4n + 3 in its quarter q.
#pragma GCC unroll 4
  for (int r = 0; r < 16; r += 4) {
    a[r] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(b[r]), _mm512_castps_pd(b[r + 2])));
    a[r + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(b[r]), _mm512_castps_pd(b[r + 2])));
    a[r + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(b[r + 1]), _mm512_castps_pd(b[r + 3])));
    a[r + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(b[r + 1]), _mm512_castps_pd(b[r + 3])));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 low01 = _mm512_shuffle_f32x4(a[c], a[c + 4], 0x44),
                 low23 = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(a[c], a[c + 4], 0xee),
                 high23 = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0xee);
    _mm512_storeu_ps(dst + c * ld_dst, _mm512_shuffle_f32x4(low01, low23, 0x88));
    _mm512_storeu_ps(dst + (c + 4) * ld_dst, _mm512_shuffle_f32x4(low01, low23, 0xdd));
    _mm512_storeu_ps(dst + (c + 8) * ld_dst, _mm512_shuffle_f32x4(high01, high23, 0x88));
    _mm512_storeu_ps(dst + (c + 12) * ld_dst, _mm512_shuffle_f32x4(high01, high23, 0xdd));
  }
}

// dst[c][r] = src[r][c] for r < rows, c < columns, both rounded up to 16 (the padding of src must be readable, that of dst
// writable).
inline void transpose(const float* HWY_RESTRICT src, i64 ld_src, i64 rows, i64 columns, float* HWY_RESTRICT dst,
                      i64 ld_dst) {
  for (i64 r = 0; r < rows; r += 16)
    for (i64 c = 0; c < columns; c += 16) transpose_block(src + r * ld_src + c, ld_src, dst + c * ld_dst + r, ld_dst);
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
