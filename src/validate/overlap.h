// Which tensors share memory: exact answers from addresses, extents and strides, so that slices of one fused buffer pass
// and a real collision does not.
#pragma once

#include "core/problem.h"

namespace iso {

// True if two different index tuples of `t` have the same address.
bool overlaps_itself(const Tensor& t);

// True if some byte belongs to an element of `a` and to an element of `b`. Both have data and elements that fit in memory
// (validate/tensor.h).
bool overlap(const Tensor& a, const Tensor& b);

}  // namespace iso
