#include <immintrin.h>

#include "peak.h"

namespace iso::tool {
namespace {

constexpr int kChains = 24;  // of 32 registers; 8 to 12 would hide the latency

double run(i64 rounds) {
  __m512 chain[kChains];
  for (int n = 0; n < kChains; ++n) chain[n] = _mm512_set1_ps(static_cast<float>(n));  // different, or one would serve all
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
  for (i64 round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int n = 0; n < kChains; ++n) chain[n] = _mm512_fmadd_ps(chain[n], a, b);
  }
  double sum = 0;
  for (int n = 0; n < kChains; ++n) sum += chain[n][0];
  return sum;
}

}  // namespace

extern const PeakLoop peak_avx512;
const PeakLoop peak_avx512{"avx512 avx512_bf16 amx", false, "vfmadd, 512 bits", kChains * 32, run};

}  // namespace iso::tool
