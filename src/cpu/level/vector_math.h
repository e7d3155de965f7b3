// Elementwise mathematics of the kernels: 2^x, soft cap and its derivative.
#pragma once

#include ISO_CPU_SIMD

#include <hwy/contrib/math/math-inl.h>

#include "core/problem.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// 2^x for x below about 1: 0 at and below -126 (so exactly 0 at -inf), NaN at NaN, 1 at 0. Relative error below 2e-7.
HWY_INLINE Vec exp2(Vec x) {
  const auto tiny = hn::Lt(x, hn::Set(kFloat, -126.0f));
  const Vec n = hn::Round(x);
  const Vec f = hn::Sub(x, n);
  // Taylor coefficients ln(2)^k / k!; |f| <= 1/2, so the first term left out is below 2e-8.
  Vec y = hn::Set(kFloat, 1.5252733804059841e-5f);
  y = hn::MulAdd(y, f, hn::Set(kFloat, 1.5403530393381610e-4f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 1.3333558146428443e-3f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 9.6181291076284772e-3f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 5.5504108664821580e-2f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 2.4022650695910071e-1f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 6.9314718055994531e-1f));
  y = hn::MulAdd(y, f, hn::Set(kFloat, 1.0f));
  const auto scaled = hn::Add(hn::BitCast(kInt, y), hn::ShiftLeft<23>(hn::ConvertTo(kInt, n)));
  // Adding to the exponent field can make a number of a NaN; f still is one.
  return hn::IfThenZeroElse(tiny, hn::MulAdd(f, hn::Zero(kFloat), hn::BitCast(kFloat, scaled)));
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
