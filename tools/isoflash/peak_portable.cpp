#include "peak.h"

namespace iso::tool {
namespace {

constexpr int kChains = 12;  // with two operands, what 16 registers hold

double run(i64 rounds) {
  typedef float Vector __attribute__((vector_size(16)));
  Vector chain[kChains];
  for (int n = 0; n < kChains; ++n) chain[n] = Vector{} + static_cast<float>(n);  // different, or one would serve all
  const Vector a = Vector{} + 0.5f, b = Vector{} + 1.0f;
  for (i64 round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int n = 0; n < kChains; ++n) chain[n] = chain[n] * a + b;
  }
  double sum = 0;
  for (int n = 0; n < kChains; ++n) sum += chain[n][0];
  return sum;
}

}  // namespace

extern const PeakLoop peak_portable;
const PeakLoop peak_portable{"scalar baseline", false, "multiply and add, 128 bits", kChains * 8, run};

}  // namespace iso::tool
