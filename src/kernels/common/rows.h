// What the kernels of this folder share. Each is bound by memory: it walks over the rows (position, head) of its CTA's
// RowBlock in memory order, heads fastest. The lanes of a row are a power of two, each with 8 elements; a thread holds
// kRowsInFlight rows at a time, so that enough loads are under way.
#pragma once

#include "base/dtype.h"
#include "base/math.h"
#include "instr/instr.h"
#include "kernels/params.h"

namespace iso {
inline namespace ISO_TARGET {

inline constexpr i32 kVector = 8;
inline constexpr i32 kRowsInFlight = 2;

// A thread's place: it works on row `group` of the CTA's `groups` at a time, on elements [lane * 8, lane * 8 + 8).
struct RowLanes {
  i32 lanes, lane, group, groups;
};

ISO_DEVICE RowLanes row_lanes(i32 dim, i32 threads) {
  i32 lanes = 1;
  while (lanes * kVector < dim) lanes *= 2;
  const i32 thread = static_cast<i32>(instr::tid_x());
  return {lanes, thread & (lanes - 1), thread / lanes, threads / lanes};
}

// The CTA's block with its sequence.
struct RowRange {
  SequenceRows sequence;
  i32 position, num_heads;
  i32 count;  // rows of the block, used or not
};

// A struct of 8-byte words from global memory.
template <class T>
ISO_DEVICE T load_words(const T* from) {
  struct Words {
    instr::U32x2 x[sizeof(T) / 8];
  } words;
  static_assert(sizeof(Words) == sizeof(T));
#pragma unroll
  for (u32 i = 0; i < sizeof(T) / 8; ++i)
    words.x[i] = instr::ld_global_v2_b32(reinterpret_cast<const instr::U32x2*>(from) + i);
  return __builtin_bit_cast(T, words);
}

ISO_DEVICE RowRange row_range(const RowSchedule& schedule) {
  const RowBlock block = load_words(schedule.blocks + instr::ctaid_x());
  return {load_words(schedule.sequences + block.sequence), block.position, schedule.num_heads,
          schedule.positions_per_block * schedule.num_heads};
}

struct Row {
  i32 position, head;
  bool in_use;   // of the sequence
  bool in_slot;  // of the tensors
};

// Row `index` of the block; past its end neither in use nor in the slot, and at a position past everything.
ISO_DEVICE Row row_at(const RowRange& range, i32 index) {
  if (index >= range.count) return {0x7fffffff, 0, false, false};
  const i32 step = static_cast<i32>(static_cast<u32>(index) / static_cast<u32>(range.num_heads));
  const i32 position = range.position + step;
  return {position, index - step * range.num_heads, position < range.sequence.seqlen, position < range.sequence.slot};
}

ISO_DEVICE i64 element_offset(const RowTensor& t, const SequenceRows& s, const Row& row) {
  return s.batch * t.stride_batch + (s.row_begin + row.position) * t.stride_row + row.head * t.stride_head;
}

ISO_DEVICE i64 lse_offset(const LseTensor& t, const SequenceRows& s, const Row& row) {
  return s.batch * t.stride_batch + row.head * t.stride_head + (s.row_begin + row.position) * t.stride_row;
}

// Where a row lies in the backward's private arrays.
struct TileRow {
  i64 tile;
  i32 row;
  bool exists;  // the position belongs to a tile of the sequence
  bool last;    // the last row of its tile that has a position and a head: those after it are nobody's
};

ISO_DEVICE TileRow tile_row(const TileOrder& order, const SequenceRows& s, const Row& row) {
  const u32 tile = static_cast<u32>(row.position) / static_cast<u32>(order.positions_per_tile);
  const u32 heads = static_cast<u32>(row.head) / static_cast<u32>(order.heads_per_tile);
  const i32 position = row.position - static_cast<i32>(tile) * order.positions_per_tile;
  const i32 head = row.head - static_cast<i32>(heads) * order.heads_per_tile;
  return {s.first_tile + static_cast<i64>(heads) * s.num_tiles + tile, position * order.heads_per_tile + head,
          tile < static_cast<u32>(s.num_tiles),
          position == order.positions_per_tile - 1 && head == order.heads_per_tile - 1};
}

// --- 8 elements of a row ------------------------------------------------------------------------------------------------

ISO_DEVICE float load_element(const float* from) { return instr::ld_global_f32(from); }
template <class T>
ISO_DEVICE T load_element(const T* from) {
  return {instr::ld_global_b16(from)};
}

// to_float, for float16 in fewer instructions, so that these kernels keep up with memory: exponent and mantissa taken for a
// float's are 2^-112 times too small, subnormal numbers included; Inf and NaN have the largest exponent in both.
ISO_DEVICE float widen(float x) { return x; }
ISO_DEVICE float widen(bf16 x) { return to_float(x); }
ISO_DEVICE float widen(f16 x) {
  const u32 magnitude = (x.bits & 0x7fffu) << 13, sign = (x.bits & 0x8000u) << 16;
  const u32 finite = float_bits(bits_float(magnitude) * 0x1p112f);
  return bits_float((magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite) | sign);
}

// Two elements, rounded to nearest, the first one low.
template <class T>
ISO_DEVICE u32 pack(float low, float high);
template <>
ISO_DEVICE u32 pack<bf16>(float low, float high) {
  return instr::cvt_rn_bf16x2_f32(high, low);
}
template <>
ISO_DEVICE u32 pack<f16>(float low, float high) {
  return instr::cvt_rn_f16x2_f32(high, low);
}

// As loaded: converting them later lets the loads of several rows be under way at once.
template <class T>
struct Vector {
  T x[kVector];
};

// From or to a multiple of 16 bytes.
template <class T>
ISO_DEVICE Vector<T> load_aligned(const T* from) {
  struct Words {
    instr::U32x4 x[sizeof(Vector<T>) / 16];
  } words;
#pragma unroll
  for (u32 i = 0; i < sizeof(words) / 16; ++i)
    words.x[i] = instr::ld_global_v4_b32(reinterpret_cast<const instr::U32x4*>(from) + i);
  return __builtin_bit_cast(Vector<T>, words);
}

// Elements [first, first + 8) of the row at `offset`.
template <class T>
ISO_DEVICE Vector<T> load_vector(const RowTensor& t, i64 offset, i32 first) {
  const T* row = static_cast<const T*>(t.data) + offset;
  if (t.aligned) return load_aligned(row + first);
  Vector<T> v;
#pragma unroll
  for (i32 i = 0; i < kVector; ++i) v.x[i] = load_element(row + (first + i) * t.stride_dim);
  return v;
}

template <class T>
ISO_DEVICE void store_vector(const RowTensor& t, i64 offset, i32 first, const Vector<float>& from) {
  T* row = static_cast<T*>(t.data) + offset + first;
  const instr::U32x4 words = {pack<T>(from.x[0], from.x[1]), pack<T>(from.x[2], from.x[3]), pack<T>(from.x[4], from.x[5]),
                              pack<T>(from.x[6], from.x[7])};
  if (t.aligned) return instr::st_global_v4_b32(row, words);
  const u32 pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (i32 i = 0; i < kVector; ++i) instr::st_global_b16(row + i, static_cast<u16>(pairs[i / 2] >> i % 2 * 16));
}

// The sum of x over the `lanes` lanes of a row, in all of them; every lane of the warp takes part.
ISO_DEVICE float sum_over_lanes(float x, i32 lanes) {
  for (i32 step = lanes / 2; step > 0; step /= 2) x += instr::shfl_sync_bfly_f32(x, static_cast<u32>(step));
  return x;
}

}  // namespace ISO_TARGET
}  // namespace iso
