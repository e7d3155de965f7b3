// Where one sequence of the batch lies in the tensors, for both layouts.
//
//   dense:  (batch, seqlen, heads, dim)  sequence b is batch entry b, rows from 0
//   packed: (total, heads, dim)          sequence b is rows [cu_seqlens[b], cu_seqlens[b] + length), batch entry 0
//
// A row's address is data + batch_index * stride_batch + (row_begin + i) * stride_row + head * stride_head.
#pragma once

#include "core/mask.h"

namespace iso {

struct Sequence {
  i64 q_batch = 0, q_row_begin = 0;    // where the query rows start
  i64 kv_batch = 0, kv_row_begin = 0;  // where the key rows start
  i32 seqlen_q = 0, seqlen_kv = 0;     // rows in use
  i32 slot_q = 0, slot_kv = 0;         // rows that belong to the slot (>= in use); the outputs' rest is written as zeros
  MaskSpec mask;
};

inline namespace ISO_TARGET {

// Positions of the query rows in use.
ISO_HOST_DEVICE constexpr Interval query_positions(const Sequence& s) {
  return {s.mask.query_offset, s.mask.query_offset + s.seqlen_q};
}

}  // namespace ISO_TARGET
}  // namespace iso
