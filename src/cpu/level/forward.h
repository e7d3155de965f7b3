// Entry points of one level; level.cpp puts them into its table.
#pragma once

#include "cpu/params.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

i64 forward_scratch(const Problem& problem, bool intervals, i64 max_seqlen_kv);
i64 partial_size(const Problem& problem);
void forward(const Params& params, const ForwardTensors& tensors);

}  // namespace ISO_TARGET
}  // namespace iso::cpu
