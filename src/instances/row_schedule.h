// The tables behind RowSchedule (kernels/params.h): which CTA of the kernels in kernels/common takes which rows. Made while
// planning, copied to the device once.
#pragma once

#include <span>
#include <vector>

#include "core/sequence.h"
#include "kernels/params.h"

namespace iso {

struct RowScheduleTables {
  std::vector<SequenceRows> sequences;
  std::vector<RowBlock> blocks;  // one per CTA
  i32 positions_per_block = 1;
  i64 num_tiles = 0;  // of all sequences and heads: the size of the arrays in tile order
};

RowScheduleTables make_row_schedule(std::span<const Sequence> sequences, i64 num_heads, const TileOrder& order);

}  // namespace iso
