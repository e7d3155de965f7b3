// Block lists while they are made: one ascending list of entries for each row of blocks, whatever their kind. The arrays of
// the C ABI come from it (built_lists.h).
#pragma once

#include <vector>

#include "core/block_lists.h"

namespace iso {

// The rows of blocks of one sequence and head: query blocks that list key blocks (forward), or the other way round.
struct BlockRows {
  std::vector<i64> begin{0};  // entries of row m: entries[begin[m]] up to entries[begin[m + 1]]
  std::vector<BlockEntry> entries;

  i64 size() const { return static_cast<i64>(begin.size()) - 1; }
  const BlockEntry* first(i64 m) const { return entries.data() + begin[m]; }
  const BlockEntry* last(i64 m) const { return entries.data() + begin[m + 1]; }
  void add(i64 block, BlockKind kind) { entries.push_back({static_cast<i32>(block), kind}); }
  void end_row() { begin.push_back(static_cast<i64>(entries.size())); }
};

bool operator==(const BlockRows& a, const BlockRows& b);

// Row n of the result lists the rows of `rows` that list n; n up to num_blocks.
BlockRows transpose(const BlockRows& rows, i64 num_blocks);

// The rows of all sequences and heads, in the order of the arrays: [batch][heads]; packed [heads][batch], where the rows of
// all sequences follow each other on one axis.
struct BlockTable {
  bool packed = false;
  i64 batch = 0, heads = 0;
  std::vector<BlockRows> rows;

  BlockTable(bool is_packed, i64 num_sequences, i64 num_heads)
      : packed(is_packed), batch(num_sequences), heads(num_heads), rows(num_sequences * num_heads) {}
  BlockRows& at(i64 b, i64 head) { return rows[index(b, head)]; }
  const BlockRows& at(i64 b, i64 head) const { return rows[index(b, head)]; }

 private:
  i64 index(i64 b, i64 head) const { return packed ? head * batch + b : b * heads + head; }
};

// num_blocks[b] is the other axis of sequence b.
BlockTable transpose(const BlockTable& table, const std::vector<i64>& num_blocks);

// The same with one entry for heads that are all alike, and for the sequences of a dense table that are.
BlockTable shared(const BlockTable& table);

}  // namespace iso
