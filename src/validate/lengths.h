// Lengths: the int32 arrays of a problem and what they say about each sequence's rows.
#pragma once

#include <vector>

#include "core/mask_arrays.h"
#include "core/problem.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

// Most sequences one plan takes: a few hundred bytes of plan each.
inline constexpr i64 kMaxBatch = i64{1} << 24;

// Copies an int32 tensor of shape (batch) in host memory, with any stride.
Expected<std::vector<i32>> read_per_sequence(const isoflash_tensor& descriptor, const char* name, i64 batch);

// Number of sequences, from cu_seqlens_q or else from q; cu_seqlens_kv, if given, has as many.
Expected<i64> read_batch(const isoflash_problem& descriptor, const Tensor& q);

// Positions and lengths of the problem's sequences; masks are left to validate/mask.h. `p` has batch, rows and layouts.
// The pages that the sequences use go to `arrays`.
Expected<std::vector<Sequence>> read_sequences(const isoflash_problem& descriptor, const Problem& p, MaskArrays& arrays);

}  // namespace iso
