// Elementwise mathematics of the kernels: 2^x, soft cap and its derivative.
#pragma once

#include ISO_CPU_SIMD

#include <hwy/contrib/math/math-inl.h>

#include "core/problem.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// 2^x for x below about 1: 0 below -126 (so exactly 0 at -inf), NaN at NaN, exactly 1 at 0. Relative error below 1e-7. The
// fraction of x and the scaling by its integer part are the level's (simd_*.h).
HWY_INLINE Vec exp2(Vec x) {
  const Vec f = fraction(x);
  // Minimax polynomial of (2^f - 1) / f on |f| <= 1/2, weighted for the relative error of 2^f, which it keeps below 2e-9.
  Vec y = hn::Set(kFloat, 1.535335205354142e-4f);
  y = hn::MulAdd(y, f, hn::Set(kFloat, 1.3398873517333641e-3f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 9.618437380871488e-3f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 5.550332473362912e-2f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 2.4022647913540676e-1f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 6.93147202854051e-1f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 1.0f));
  return times_power(y, x, f);
}

// From the product q.k to the exponent of a probability.
struct ScoreMap {
  SoftcapKind kind;
  Vec scale, scale_log2;  // scale, and scale * log2(e)
  Vec cap, inverse;       // cap and 1 / cap
  Vec log2e = hn::Set(kFloat, static_cast<float>(kLog2E));

  explicit ScoreMap(const Problem& p)
      : kind(p.softcap_kind),
        scale(hn::Set(kFloat, static_cast<float>(p.scale))),
        scale_log2(hn::Set(kFloat, static_cast<float>(p.scale * kLog2E))),
        cap(hn::Set(kFloat, static_cast<float>(p.softcap))),
        // Finite for the smallest caps too, or a score of 0 would become 0 * inf.
        inverse(hn::Set(kFloat, static_cast<float>(1.0 / max_of(p.softcap, 1e-38)))) {}

  // log2(e) * softcap(scale * s)
  HWY_INLINE Vec exponent(Vec s) const {
    if (kind == SoftcapKind::none) return hn::Mul(s, scale_log2);
    Vec unused;
    return hn::Mul(capped(hn::Mul(s, scale), unused), log2e);
  }

  // P = exp(softcap(scale * s) - lse), and the derivative of the soft cap. lse is subtracted before the change of base: with
  // scores in the millions, rounding log2(e) * lse would cost a factor.
  HWY_INLINE Vec probability(Vec s, Vec lse, Vec& derivative) const {
    if (kind == SoftcapKind::none) {
      derivative = hn::Set(kFloat, 1.0f);
      return exp2(hn::Mul(hn::MulSub(s, scale, lse), log2e));
    }
    return exp2(hn::Mul(hn::Sub(capped(hn::Mul(s, scale), derivative), lse), log2e));
  }

 private:
  HWY_INLINE Vec capped(Vec x, Vec& derivative) const {
    const Vec one = hn::Set(kFloat, 1.0f);
    if (kind == SoftcapKind::tanh) {
      const Vec y = hn::Tanh(kFloat, hn::Mul(x, inverse));
      derivative = hn::NegMulAdd(y, y, one);
      return hn::Mul(y, cap);
    }
    const Vec factor = hn::Div(one, hn::MulAdd(hn::Abs(x), inverse, one));
    derivative = hn::Mul(factor, factor);
    return hn::Mul(x, factor);
  }
};

}  // namespace ISO_TARGET
}  // namespace iso::cpu
