// Memory behind the views of core/sequence.h. Moving it keeps the views valid; copying would not.
#pragma once

#include <vector>

#include "core/sequence.h"

namespace iso {

struct MaskArrays {
  std::vector<i32> intervals;             // KeyIntervals::data
  std::vector<i64> block_begin;           // BlockLists::begin
  std::vector<BlockEntry> block_entries;  // BlockLists::entries
  std::vector<i32> valid_bounds;          // BlockLists::valid_upper, then valid_lower
  std::vector<i32> block_table;           // Sequence::block_table

  MaskArrays() = default;
  MaskArrays(MaskArrays&&) = default;
  MaskArrays& operator=(MaskArrays&&) = default;
};

}  // namespace iso
