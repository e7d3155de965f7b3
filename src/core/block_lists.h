// Block lists of one sequence (a view into the plan): for each query head and each block of query rows, the key blocks it
// holds and how. Lists of the C ABI are merged into one ascending list per query block when the plan is made.
#pragma once

#include "core/mask.h"

namespace iso {

// What is seen of a block (query rows x keys).
//   full: every element       mask: what the mask beneath allows, or the valid bounds if there are any
//   diag: only the key at the query's own position
enum class BlockKind : i32 { none = 0, mask = 1, full = 2, diag = 3 };

struct BlockEntry {
  i32 block = 0;  // of keys
  BlockKind kind = BlockKind::none;
};

struct BlockLists {
  i32 block_m = 0, block_n = 0;         // query rows and keys of a block, multiples of 64; block_m 0: no lists
  const i64* begin = nullptr;           // entries of query block m: entries[begin[m]] up to entries[begin[m + 1]]
  const BlockEntry* entries = nullptr;  // ascending by block
  i64 stride_head = 0;                  // of `begin`, 0 if the heads share the lists
  // Valid bounds, per block of rows and of keys alike; null: none.
  const i32 *valid_upper = nullptr, *valid_lower = nullptr;
  i64 valid_stride_head = 0;
};

inline namespace ISO_TARGET {

ISO_HOST_DEVICE constexpr bool given(const BlockLists& b) { return b.block_m != 0; }

// The entries of one query block.
struct BlockRow {
  const BlockEntry *first, *last;  // [first, last)
};
ISO_FN BlockRow block_row(const BlockLists& b, i64 head, i32 m_block) {
  const i64* begin = b.begin + head * b.stride_head + m_block;
  return {b.entries + begin[0], b.entries + begin[1]};
}

// How query block m holds key block n.
ISO_FN BlockKind block_kind(const BlockLists& b, i64 head, i32 m_block, i32 n_block) {
  BlockRow row = block_row(b, head, m_block);
  while (row.first < row.last) {
    const BlockEntry* middle = row.first + (row.last - row.first) / 2;
    if (middle->block == n_block) return middle->kind;
    if (middle->block < n_block)
      row.first = middle + 1;
    else
      row.last = middle;
  }
  return BlockKind::none;
}

// Is position x valid by the bounds of its block?
ISO_FN bool valid_by_bounds(const BlockLists& b, i64 head, i32 x) {
  const i64 block = head * b.valid_stride_head + x / b.block_n;
  const i32 local = x % b.block_n;
  return local < b.valid_upper[block] || local >= b.valid_lower[block];
}

}  // namespace ISO_TARGET
}  // namespace iso
