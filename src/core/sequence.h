// One sequence of the batch: where its rows lie in the tensors, and who sees whom in it.
//
//   dense:  (batch, seqlen, heads, dim)           sequence b is batch entry b, rows from 0
//   packed: (total, heads, dim)                   sequence b is rows [cu_seqlens[b], cu_seqlens[b] + length), batch entry 0
//   paged:  (num_pages, page_size, heads, dim)    key j is row j % page_size of batch entry block_table[j / page_size]
//
// A row's address is data + batch_entry * stride_batch + row * stride_row + head * stride_head.
#pragma once

#include "core/block_lists.h"
#include "core/mask.h"

namespace iso {

// Explicit key intervals of one sequence's rows (a view into the plan): `count` pairs begin, end a row, ascending, disjoint,
// within [0, seqlen_kv); begin = end is an empty one.
struct KeyIntervals {
  const i32* data = nullptr;  // element [head][row][0]; null: not given
  i64 stride_head = 0, stride_row = 0;
  i32 count = 0;  // 1 to 3
};

struct Sequence {
  i64 q_batch = 0, q_row_begin = 0;    // where the query rows start
  i64 kv_batch = 0, kv_row_begin = 0;  // where the key rows start (not paged)
  i32 seqlen_q = 0, seqlen_kv = 0;     // rows in use; seqlen_kv counts new keys too
  i32 slot_q = 0, slot_kv = 0;         // rows that belong to the slot (>= in use); the outputs' rest is written as zeros
  i32 seqlen_cached = 0;             // keys in k and v; key j >= seqlen_cached is row j - seqlen_cached of k_new and v_new
  const i32* block_table = nullptr;  // paged: the pages of this sequence
  i32 page_size = 0;
  MaskSpec mask;
  KeyIntervals intervals;  // in place of mask
  BlockLists blocks;       // on top of either
};

inline namespace ISO_TARGET {

// Positions of the query rows in use.
ISO_HOST_DEVICE constexpr Interval query_positions(const Sequence& s) {
  return {s.mask.query_offset, s.mask.query_offset + s.seqlen_q};
}

// Is MaskSpec all there is?
ISO_HOST_DEVICE constexpr bool mask_only(const Sequence& s) { return s.intervals.data == nullptr && !given(s.blocks); }

// Where key j lies.
struct KvPlace {
  bool is_new;     // in k_new and v_new, else in k and v
  i64 batch, row;  // batch entry (page) and row
};
ISO_FN KvPlace kv_place(const Sequence& s, i32 j) {
  if (j >= s.seqlen_cached) return {true, s.q_batch, s.q_row_begin + (j - s.seqlen_cached)};
  if (s.block_table != nullptr) return {false, s.block_table[j / s.page_size], j % s.page_size};
  return {false, s.kv_batch, s.kv_row_begin + j};
}
// Keys [begin, result) lie in one tensor, row after row; result is at most `end`.
ISO_FN i32 kv_run_end(const Sequence& s, i32 begin, i32 end) {
  if (begin >= s.seqlen_cached) return end;
  end = min_of(end, s.seqlen_cached);
  return s.block_table == nullptr ? end : min_of(end, begin - begin % s.page_size + s.page_size);
}

// Keys that row i sees by its explicit intervals.
ISO_FN RowIntervals explicit_intervals(const Sequence& s, i64 head, i32 i) {
  RowIntervals out;
  const i32* at = s.intervals.data + head * s.intervals.stride_head + i * s.intervals.stride_row;
  for (i32 n = 0; n < s.intervals.count; ++n) out.add({at[2 * n], at[2 * n + 1]});
  return out;
}

// THE DEFINITION of the whole library: may query row i of query head `head` see key j?
ISO_FN bool visible(const Sequence& s, i64 head, i32 i, i32 j) {
  if (j < 0 || j >= s.seqlen_kv) return false;
  const i32 p = i + s.mask.query_offset;
  if (given(s.blocks)) {
    switch (block_kind(s.blocks, head, i / s.blocks.block_m, j / s.blocks.block_n)) {
      case BlockKind::none: return false;
      case BlockKind::full: return true;
      case BlockKind::diag: return p == j;
      case BlockKind::mask:
        if (s.blocks.valid_upper != nullptr)
          return valid_by_bounds(s.blocks, head, i) && valid_by_bounds(s.blocks, head, j);
    }
  }
  return s.intervals.data != nullptr ? explicit_intervals(s, head, i).contains(j) : visible(s.mask, p, j);
}

}  // namespace ISO_TARGET
}  // namespace iso
