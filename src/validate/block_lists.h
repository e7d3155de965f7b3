// Block lists of the C ABI: checked, and merged into one ascending list per query block and head.
#pragma once

#include <span>
#include <vector>

#include "core/mask_arrays.h"
#include "core/problem.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

// Is any list of this direction given?
bool any_given(const isoflash_block_lists& descriptor);

// A positive multiple of 64.
Expected<void> check_block_size(const char* argument, i64 size);

// The blocks along one axis (of queries or of keys), sequence by sequence.
struct BlockAxis {
  i64 total = 0;           // extent of that axis in arrays
  bool packed = false;     // are arrays without a batch axis, the blocks of sequence b from begin[b]?
  std::vector<i64> begin;  // of each sequence, 0 in dense arrays
  std::vector<i32> count;
};

// Ascending lists of one direction, for each sequence (one if shared), head (one if shared) and block.
struct MergedLists {
  std::vector<i64> begin;
  std::vector<BlockEntry> entries;
  std::vector<i64> first;   // where the sequence's part of `begin` starts
  std::vector<i64> stride;  // from head to head in it, 0 if shared

  std::span<const BlockEntry> row(std::size_t b, i64 head, i32 m) const {
    const i64* at = begin.data() + first[b] + head * stride[b] + m;
    return {entries.data() + at[0], entries.data() + at[1]};
  }
};

// The lists of one direction by themselves: `own` indexes them, `other` is what they hold. Of `p`, only batch, num_heads_q
// and packed are read.
Expected<MergedLists> read_lists(const isoflash_block_lists& descriptor, const char* direction, const Problem& p,
                                 const BlockAxis& own, const BlockAxis& other);

// Fills `arrays` and lets the sequences, whose lengths are set, point to it. Does nothing if there are no lists.
Expected<void> read_block_lists(const isoflash_problem& descriptor, const Problem& p, std::vector<Sequence>& sequences,
                                MaskArrays& arrays);

}  // namespace iso
