#include "validate/overlap.h"

#include <algorithm>
#include <cstdint>

#include "base/math.h"
#include "validate/tensor.h"

namespace iso {
namespace {

// stride * x with x in [low, high]; strides are positive.
struct Term {
  i64 stride, low, high;
};

// Is there a choice of the x with sum(stride * x) == target? The question is a bounded linear Diophantine equation, hard in
// general and easy for tensors: with the terms sorted by stride, large first, nested axes leave one or two values of each x
// worth trying. Real layouts need a few dozen steps; one that needs more than kMaxSteps is called overlapping, since its
// answer is unknown and a wrong "no" would let two threads write one address. No allocation: this runs in every call.
class SumSearch {
 public:
  void add(Term term) { terms_[count_++] = term; }

  // Axes of one stride act as one longer axis: this is what makes fused buffers cheap.
  void add_or_join(Term term) {
    for (int n = 0; n < count_; ++n) {
      if (terms_[n].stride != term.stride) continue;
      terms_[n].low += term.low;
      terms_[n].high += term.high;
      return;
    }
    add(term);
  }

  // With `nonzero`, a choice of all zeros does not count.
  bool reaches(i64 target, bool nonzero) {
    std::sort(terms_, terms_ + count_, [](const Term& a, const Term& b) { return a.stride > b.stride; });
    lowest_[count_] = highest_[count_] = 0;
    for (int n = count_ - 1; n >= 0; --n) {
      lowest_[n] = lowest_[n + 1] + terms_[n].stride * terms_[n].low;
      highest_[n] = highest_[n + 1] + terms_[n].stride * terms_[n].high;
    }
    steps_ = 0;
    return search(0, target, nonzero);
  }

 private:
  static constexpr int kMaxSteps = 20000;
  static constexpr int kMaxTerms = 9;  // the axes of two tensors, and the bytes of an element

  bool search(int n, i64 rest, bool nonzero) {
    if (++steps_ > kMaxSteps) return true;
    if (n == count_) return rest == 0 && !nonzero;
    const Term& t = terms_[n];
    // What the later terms can add leaves x between these.
    const i64 first = max_of(t.low, -floor_div(highest_[n + 1] - rest, t.stride));
    const i64 last = min_of(t.high, floor_div(rest - lowest_[n + 1], t.stride));
    for (i64 x = first; x <= last; ++x)
      if (search(n + 1, rest - t.stride * x, nonzero && x == 0)) return true;
    return false;
  }

  Term terms_[kMaxTerms];
  int count_ = 0;
  i64 lowest_[kMaxTerms + 1], highest_[kMaxTerms + 1];  // of the sum of terms n and later
  int steps_ = 0;
};

// The axes of `t`, counted in bytes, added to (or, with `negate`, subtracted from) the sum.
void add_axes(SumSearch& sum, const Tensor& t, bool negate) {
  for (i32 axis = 0; axis < t.rank; ++axis) {
    const i64 reach = t.shape[axis] - 1, stride = t.strides[axis] * dtype_size(t.dtype);
    if (reach <= 0 || stride == 0) continue;
    const bool downwards = (stride < 0) != negate;
    sum.add_or_join({stride < 0 ? -stride : stride, downwards ? -reach : 0, downwards ? 0 : reach});
  }
}

}  // namespace

bool overlaps_itself(const Tensor& t) {
  // Two index tuples meet where their difference d, with |d_k| < extent_k and not all zero, has sum(stride_k * d_k) == 0.
  if (!has_elements(t)) return false;
  SumSearch sum;
  for (i32 axis = 0; axis < t.rank; ++axis) {
    const i64 reach = t.shape[axis] - 1, stride = t.strides[axis];
    if (reach == 0) continue;
    if (stride == 0) return true;
    sum.add({stride < 0 ? -stride : stride, -reach, reach});
  }
  return sum.reaches(0, true);
}

bool overlap(const Tensor& a, const Tensor& b) {
  const AddressRange x = address_range(a), y = address_range(b);
  if (x.begin >= y.end || y.begin >= x.end) return false;  // also if one has no elements

  // Is there data_a + sum(a) + byte_a == data_b + sum(b) + byte_b?
  SumSearch sum;
  add_axes(sum, a, false);
  add_axes(sum, b, true);
  sum.add_or_join({1, 1 - dtype_size(b.dtype), dtype_size(a.dtype) - 1});
  const auto distance = reinterpret_cast<std::uintptr_t>(b.data) - reinterpret_cast<std::uintptr_t>(a.data);
  return sum.reaches(static_cast<i64>(distance), false);
}

}  // namespace iso
