// Tensors whose axes may have extent 1 where one slice stands for all.
#pragma once

#include <span>
#include <string>

#include "core/problem.h"
#include "errors/error.h"

namespace iso {

inline constexpr i64 kAnyExtent = -1;

struct BroadcastAxis {
  const char* name;
  i64 extent;     // or kAnyExtent
  bool may_be_1;  // and then stands for all
};

// Rank and extents are those of `axes`?
bool fits(const Tensor& t, std::span<const BroadcastAxis> axes);
// "(batch 2 or 1, num_heads_q 4 or 1, seqlen_q 6)"
std::string axes_text(std::span<const BroadcastAxis> axes);
// Gives stride 0 to the axes of extent 1.
void stride_over_shared_axes(Tensor& t);

}  // namespace iso
