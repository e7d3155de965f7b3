// The tensors of a problem: which axes each has, what its extents must be, and what a call demands of its layout.
#pragma once

#include "core/problem.h"
#include "errors/error.h"

namespace iso {

enum class TensorId { q, k, v, out, lse, dout, dlse, dq, dk, dv, k_new, v_new, sink, bias, dsink, dbias };

const char* tensor_name(TensorId id);

// Does `t` have the rank, shape, dtype and device that `p` gives it? As the plan is made: the error names the tensor and
// the axis that disagree. `p` has all its dimensions. Any tensor but bias.
Expected<void> check_problem_tensor(const Problem& p, TensorId id, const Tensor& t);

// The same for bias, whose axes before the last may be 1. Sequences have up to `longest` keys.
Expected<void> check_problem_bias(const Problem& p, const Tensor& bias, i64 longest);

// The same when a call runs: the error says what the plan was made for. `layout` is the plan's.
Expected<void> check_call_tensor(const Problem& p, const ForwardTensors& layout, TensorId id, const Tensor& t);

// A tensor that is written: strides are positive and every element has an address of its own.
Expected<void> check_written_layout(const Problem& p, TensorId id, const Tensor& t);

}  // namespace iso
