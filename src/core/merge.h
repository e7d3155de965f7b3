// Merging attention over disjoint sets of keys ("parts"), one row at a time:
//
//   lse = ln(sum of exp(lse_n))      w_n = exp(lse_n - lse)      out = sum of w_n out_n
//   dout_n = w_n dout                dlse_n = w_n (dout . (out_n - out) + dlse)
//
// A part that saw no key, lse_n = -inf, has weight 0 whatever its out holds; a row that no part saw has out = 0, lse = -inf.
// An lse_n of NaN or +inf (a NaN or +inf score) makes the row NaN, as such a score does when all keys are seen at once.
//
// Math supplies the real type and its exp and log: float64 on the host, float32 in kernels.
#pragma once

#include "base/compile.h"

namespace iso {
inline namespace ISO_TARGET {

inline constexpr float kLseOfNoKey = -__builtin_inff();

// Weights and lse of one row, from the parts' lse alone. They sum to 1 however large |lse| is.
template <class Math>
class MergedRow {
 public:
  using Real = typename Math::Real;

  // lse_of(n) is the lse of part n.
  template <class LseOf>
  ISO_HOST_DEVICE MergedRow(i32 num_parts, const LseOf& lse_of) {
    for (i32 n = 0; n < num_parts; ++n) {
      const float lse = lse_of(n);
      if (lse > max_ || lse != lse) max_ = lse;
    }
    if (max_ == kLseOfNoKey) return;
    for (i32 n = 0; n < num_parts; ++n) sum_ += Math::exp(Real(lse_of(n)) - Real(max_));
  }

  ISO_HOST_DEVICE float lse() const {
    return max_ == kLseOfNoKey ? kLseOfNoKey : static_cast<float>(Real(max_) + Math::log(sum_));
  }
  ISO_HOST_DEVICE Real weight(float part_lse) const {
    return part_lse == kLseOfNoKey ? Real(0) : Math::exp(Real(part_lse) - Real(max_)) / sum_;
  }

 private:
  float max_ = kLseOfNoKey;
  Real sum_ = 0;
};

// The weight of a part in a row merged before.
template <class Math>
ISO_FN typename Math::Real merged_weight(float part_lse, float lse) {
  using Real = typename Math::Real;
  return part_lse == kLseOfNoKey ? Real(0) : Math::exp(Real(part_lse) - Real(lse));
}

}  // namespace ISO_TARGET
}  // namespace iso
