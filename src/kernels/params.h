// The arguments of GPU kernels: what the host fills in and a kernel receives by value. Pointers are device addresses.
// Plain structs, equal on host and device; a TensorMap is instr/types.h's.
#pragma once

#include "instr/types.h"

namespace iso {

// --- tensors ------------------------------------------------------------------------------------------------------------

// Element (batch, row, head, d) lies at
//   data + batch * stride_batch + row * stride_row + head * stride_head + d * stride_dim
// with strides in elements, of any sign for inputs.
struct RowTensor {
  void* data;
  i64 stride_batch, stride_row, stride_head;
  i32 stride_dim;  // 1, or 0 for an expanded input
  i32 aligned;     // every row starts at a multiple of 16 bytes and stride_dim is 1: 16-byte accesses
};

// float32, one number per (batch, head, row): lse and its gradient. data may be null where a tensor is optional.
struct LseTensor {
  float* data;
  i64 stride_batch, stride_head, stride_row;
};

// --- rows and tiles -----------------------------------------------------------------------------------------------------

// The backward's private arrays are in tile order: the query rows of a sequence are cut into tiles of positions_per_tile
// positions times heads_per_tile heads, which take the first rows of tile_rows, heads fastest:
//
//   tile of (position i, head h) = first_tile + (h / heads_per_tile) * num_tiles + i / positions_per_tile
//   row in the tile              = (i % positions_per_tile) * heads_per_tile + h % heads_per_tile
//
// positions_per_tile * heads_per_tile <= tile_rows; heads_per_tile divides the number of query heads.
struct TileOrder {
  i32 tile_rows, positions_per_tile, heads_per_tile;
};

// A sequence's query rows: rows [row_begin, row_begin + slot) of batch entry `batch`, the first `seqlen` of them in use.
struct SequenceRows {
  i64 batch, row_begin;
  i64 first_tile;  // of head 0
  i32 seqlen, slot;
  i32 num_tiles;  // per heads_per_tile heads: ceil(seqlen / positions_per_tile)
  i32 unused;
};

// A CTA's share: positions [position, position + positions_per_block) of one sequence, all heads.
struct RowBlock {
  i32 sequence, position;
};

// What the kernels in common/ walk over. Blocks cover each sequence's slot and its last tile's padding.
struct RowSchedule {
  const RowBlock* blocks;  // one per CTA
  const SequenceRows* sequences;
  i32 positions_per_block, num_heads;
};

// --- kernels ------------------------------------------------------------------------------------------------------------

// common/bwd_preprocess.h
struct BwdPreprocessParams {
  RowSchedule schedule;
  TileOrder order;
  RowTensor out, dout;
  LseTensor lse, dlse;       // dlse.data may be null
  float* stats;              // [tile][2][tile_rows]: lse * log2(e), then D
  float* dq_accum;           // [tile][tile_rows][head_dim], filled with zeros; may be null
  i32 head_dim, head_dim_v;  // multiples of 8 up to 256
};

// common/dq_convert.h
struct DqConvertParams {
  RowSchedule schedule;
  TileOrder order;
  const float* dq_accum;  // [tile][tile_rows][head_dim]
  RowTensor dq;
  i32 head_dim;
  float scale;
};

// common/split_combine.h. Part n of out and lse lies n * stride_part elements after part 0.
struct SplitCombineParams {
  RowSchedule schedule;
  RowTensor part_out;
  LseTensor part_lse;
  i64 stride_part_out, stride_part_lse;
  RowTensor out;
  LseTensor lse;  // data may be null
  i32 num_parts, head_dim_v;
};

}  // namespace iso
