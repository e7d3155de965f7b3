// Descriptors in, Problem or error out. Every rule of the C ABI that the host can see is checked here, once, for every
// binding and every backend; what passes needs no further check.
#pragma once

#include <cstddef>
#include <vector>

#include "core/mask_arrays.h"
#include "core/problem.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

struct Validated {
  Problem problem;
  std::vector<Sequence> sequences;  // one per batch entry, masks resolved
  MaskArrays mask_arrays;           // what their views point into
  ForwardTensors layout;            // the problem's tensors, without data
};

// Reads the int32 arrays (lengths, mask values, intervals, block lists, block_table), and no other memory.
Expected<Validated> validate_problem(const isoflash_problem& descriptor);

// What alignment a workspace has.
inline constexpr std::size_t kWorkspaceAlignment = 64;

// A call's tensors against the plan's problem and layout, their memory and the workspace of `workspace_needed` bytes.
// Allocates only to describe an error.
Expected<ForwardTensors> validate_forward(const Problem& problem, const ForwardTensors& layout,
                                          const isoflash_forward_args& args, std::size_t workspace_needed);
Expected<BackwardTensors> validate_backward(const Problem& problem, const ForwardTensors& layout,
                                            const isoflash_backward_args& args, std::size_t workspace_needed);

}  // namespace iso
