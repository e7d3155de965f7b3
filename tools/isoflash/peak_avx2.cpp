#include <immintrin.h>

#include "peak.h"

namespace iso::tool {
namespace {

constexpr int kChains = 12;  // with two operands, what 16 registers hold

double run(i64 rounds) {
  __m256 chain[kChains];
  for (int n = 0; n < kChains; ++n) chain[n] = _mm256_set1_ps(static_cast<float>(n));  // different, or one would serve all
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
  for (i64 round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int n = 0; n < kChains; ++n) chain[n] = _mm256_fmadd_ps(chain[n], a, b);
  }
  double sum = 0;
  for (int n = 0; n < kChains; ++n) sum += chain[n][0];
  return sum;
}

}  // namespace

extern const PeakLoop peak_avx2;
const PeakLoop peak_avx2{"avx2", false, "vfmadd, 256 bits", kChains * 16, run};

}  // namespace iso::tool
