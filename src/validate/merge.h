// The arguments of isoflash_merge and isoflash_merge_backward: descriptors in, tensors or error out. What passes has one
// shape, float types, memory on the CPU, and shares none of what is written.
#pragma once

#include <vector>

#include "core/problem.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

// The overlap checks compare every pair of tensors.
inline constexpr i32 kMaxMergeParts = 1024;

// out and its like (batch, rows, num_heads, head_dim_v), packed without the batch; lse and its like (batch, num_heads,
// rows), packed without the batch. lse may be absent. out may be one of outs, lse one of lses.
struct MergeTensors {
  std::vector<Tensor> outs, lses;
  Tensor out, lse;
};
Expected<MergeTensors> validate_merge(const isoflash_merge_args& args);

// dlse may be absent.
struct MergeBackwardTensors {
  std::vector<Tensor> outs, lses;
  Tensor out, lse, dout, dlse;
  std::vector<Tensor> douts, dlses;
};
Expected<MergeBackwardTensors> validate_merge_backward(const isoflash_merge_backward_args& args);

}  // namespace iso
