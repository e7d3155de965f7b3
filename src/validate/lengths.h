// Lengths: the int32 arrays of a problem and what they say about each sequence's rows.
#pragma once

#include <vector>

#include "core/problem.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

// Most sequences one plan takes: about 100 bytes of plan each.
inline constexpr i64 kMaxBatch = i64{1} << 24;

// Copies an int32 tensor of shape (batch) in host memory, with any stride.
Expected<std::vector<i32>> read_per_sequence(const isoflash_tensor& descriptor, const char* name, i64 batch);

// Number of sequences of a packed problem, from its cu_seqlens.
Expected<i64> packed_batch(const isoflash_problem& descriptor);

// Positions and lengths of the problem's sequences; masks are left for validate/mask.h. `p` has batch, rows and packed.
Expected<std::vector<Sequence>> read_sequences(const isoflash_problem& descriptor, const Problem& p);

}  // namespace iso
