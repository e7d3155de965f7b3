#include <immintrin.h>

#include "peak.h"

namespace iso::tool {
namespace {

constexpr int kChains = 24;  // of 32 registers; 8 to 12 would hide the latency

double run(i64 rounds) {
  __m512 chain[kChains];
  for (int n = 0; n < kChains; ++n) chain[n] = _mm512_set1_ps(static_cast<float>(n));  // different, or one would serve all
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512bh a = _mm512_cvtne2ps_pbh(one, one);
  for (i64 round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int n = 0; n < kChains; ++n) chain[n] = _mm512_dpbf16_ps(chain[n], a, a);
  }
  double sum = 0;
  for (int n = 0; n < kChains; ++n) sum += chain[n][0];
  return sum;
}

}  // namespace

extern const PeakLoop peak_avx512bf16;
const PeakLoop peak_avx512bf16{"avx512_bf16", true, "vdpbf16ps, 512 bits", kChains * 64, run};

}  // namespace iso::tool
