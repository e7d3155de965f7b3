// Entry points of one level; level.cpp puts them into its table.
#pragma once

#include "cpu/params.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

i64 backward_scratch(const Problem& problem, bool intervals, i64 max_seqlen_kv);
void backward(const Params& params, const BackwardTensors& tensors);

}  // namespace ISO_TARGET
}  // namespace iso::cpu
