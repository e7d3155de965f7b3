// bf16 products by AVX-512 dot products of pairs (vdpbf16ps).
#pragma once

#include "cpu/level/engine_pairs.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

struct DotMultiply {
  struct Session {};

  // c[32][32] (+)= a[32][depth] * b[depth / 2][32] pairs. lda and ldc in elements, ldb in pairs.
  template <Old old>
  static void block(const bf16* a, i64 lda, const bf16* b, i64 ldb, float* c, i64 ldc, i64 depth) {
    constexpr int kStrip = 8;  // rows at a time: 16 accumulators
    for (int strip = 0; strip < 32; strip += kStrip, a += kStrip * lda, c += kStrip * ldc) {
      __m512 acc[kStrip][2];
#pragma GCC unroll 8
      for (int m = 0; m < kStrip; ++m)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v)
          acc[m][v] = old == Old::add ? _mm512_loadu_ps(c + m * ldc + 16 * v) : _mm512_setzero_ps();
      for (i64 k = 0; k < depth; k += 2) {
        const auto b0 = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(b + k * ldb));
        const auto b1 = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(b + k * ldb + 32));
#pragma GCC unroll 8
        for (int m = 0; m < kStrip; ++m) {
          int pair;
          __builtin_memcpy(&pair, a + m * lda + k, sizeof pair);
          const auto am = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(pair));
          acc[m][0] = _mm512_dpbf16_ps(acc[m][0], am, b0);
          acc[m][1] = _mm512_dpbf16_ps(acc[m][1], am, b1);
        }
      }
#pragma GCC unroll 8
      for (int m = 0; m < kStrip; ++m)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) _mm512_storeu_ps(c + m * ldc + 16 * v, acc[m][v]);
    }
  }
};

template <>
struct EngineFor<bf16> {
  using type = PairEngine<DotMultiply>;
};

}  // namespace ISO_TARGET
}  // namespace iso::cpu
