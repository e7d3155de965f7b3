// Pieces that forward and backward share: the rows of a query tile, keys wherever they lie, bias, candidate groups.
#pragma once

#include ISO_CPU_ENGINE
#include "cpu/level/query_mask.h"
#include "cpu/level/vector_math.h"
#include "cpu/params.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// Leading dimension of a row of n elements: whole vectors and blocks of every engine.
inline i64 padded(i64 n) { return align_up<i64>(n, 32); }

// Reads the rows of a query tile of `t` into dst (row r at dst + r * padded(dim)), with zero columns up to the padding and
// zero rows up to a whole panel.
template <class Engine, class T>
inline void read_query_rows(const Tensor& t, const Sequence& s, const QueryTile& tile, i64 dim,
                            typename Engine::Element* dst) {
  const i64 ld = padded(dim), stride = last_stride(t);
  i64 r = 0;
  for (i64 i = 0; i < tile.positions; ++i)
    for (i64 h = 0; h < tile.heads; ++h, ++r) {
      Engine::read_row(row_pointer<const T>(t, s.q_batch, s.q_row_begin + tile.first_row + i, tile.head + h), stride, dim,
                       dst + r * ld);
      for (i64 k = dim; k < ld; ++k) dst[r * ld + k] = {};
    }
  for (i64 k = r * ld; k < align_up(r, Engine::kPanel) * ld; ++k) dst[k] = {};
}

// K or V of a sequence and KV head, in one tensor or two, in rows or pages.
template <class T>
struct KeySource {
  const Tensor& tensor;
  const Tensor& new_keys;
  const Sequence& sequence;
  i64 head, dim;

  const Tensor& tensor_of(const KvPlace& place) const { return place.is_new ? new_keys : tensor; }
  const T* row(const KvPlace& place) const { return row_pointer<const T>(tensor_of(place), place.batch, place.row, head); }
};

// The rows of a key tile as an operand: where they lie if they can be multiplied there, else in `copy`.
template <class Engine, class T>
inline typename Engine::Rows key_rows(const KeySource<T>& source, Interval keys, typename Engine::Element* copy) {
  const i64 ld = padded(source.dim);
  for (i32 j = keys.begin; j < keys.end;) {
    const KvPlace place = kv_place(source.sequence, j);
    const Tensor& t = source.tensor_of(place);
    const i64 row_stride = t.strides[t.rank - 3], stride = last_stride(t);
    const i32 end = kv_run_end(source.sequence, j, keys.end);
    const T* first = source.row(place);
    if constexpr (__is_same(T, typename Engine::Element) && !Engine::kBlocks) {
      if (stride == 1 && end - j == keys.size()) return {first, row_stride};
    }
    for (; j < end; ++j, first += row_stride) Engine::read_row(first, stride, source.dim, copy + (j - keys.begin) * ld);
  }
  Engine::finish_keys(copy, keys.size(), source.dim, ld);
  return {copy, ld};
}

// q.k over n floats.
HWY_INLINE float dot(const float* a, const float* b, i64 n) {
  Vec sum = hn::Zero(kFloat), sum2 = hn::Zero(kFloat);
  i64 k = 0;
  for (; k + 2 * kLanes <= n; k += 2 * kLanes) {
    sum = hn::MulAdd(hn::LoadU(kFloat, a + k), hn::LoadU(kFloat, b + k), sum);
    sum2 = hn::MulAdd(hn::LoadU(kFloat, a + k + kLanes), hn::LoadU(kFloat, b + k + kLanes), sum2);
  }
  sum = hn::Add(sum, sum2);
  for (; k + kLanes <= n; k += kLanes) sum = hn::MulAdd(hn::LoadU(kFloat, a + k), hn::LoadU(kFloat, b + k), sum);
  float total = hn::GetLane(hn::SumOfLanes(kFloat, sum));
  for (; k < n; ++k) total += a[k] * b[k];
  return total;
}

// y = y * old + x * factor over n floats.
HWY_INLINE void blend(float* y, float old, const float* x, float factor, i64 n) {
  i64 k = 0;
  const Vec o = hn::Set(kFloat, old), f = hn::Set(kFloat, factor);
  for (; k + kLanes <= n; k += kLanes)
    hn::StoreU(hn::MulAdd(hn::LoadU(kFloat, x + k), f, hn::Mul(hn::LoadU(kFloat, y + k), o)), kFloat, y + k);
  for (; k < n; ++k) y[k] = y[k] * old + x[k] * factor;
}

// One row of a tensor as floats: in place if it can be, else converted into `copy`.
template <class T>
inline const float* float_row(const T* row, i64 stride, i64 dim, float* copy) {
  if constexpr (__is_same(T, float)) {
    if (stride == 1) return row;
  }
  read_row(row, stride, dim, copy);
  return copy;
}

// Rows of K or V as floats, one at a time; the last one is kept for the next query with the same key.
template <class T>
class KeyRow {
 public:
  KeyRow(const KeySource<T>& source, float* copy) : source_(source), copy_(copy) {}
  const float* at(i32 j) {
    if (j != current_) {
      const KvPlace place = kv_place(source_.sequence, j);
      row_ = float_row(source_.row(place), last_stride(source_.tensor_of(place)), source_.dim, copy_);
      current_ = j;
    }
    return row_;
  }

 private:
  KeySource<T> source_;
  float* copy_;
  const float* row_ = nullptr;
  i32 current_ = -1;
};

// Elements of the bias (or its gradient, whose axes of extent 1 stand for all) of one row.
inline i64 bias_offset(const Tensor& t, i64 batch, i64 row, i64 head) {
  const auto at = [&](int axis, i64 index) { return t.shape[axis] == 1 ? 0 : index * t.strides[axis]; };
  return t.rank == 4 ? at(0, batch) + at(1, head) + at(2, row) : at(0, head) + at(1, row);
}
inline float* bias_row(const Tensor& t, const Sequence& s, i64 row, i64 head) {
  return static_cast<float*>(t.data) + bias_offset(t, s.q_batch, s.q_row_begin + row, head);
}

// The bias of a key tile times `factor`: key j, tile row r at out[(j - keys.begin) * kTileRows + r]; zeros past the rows.
inline void read_bias(const Tensor& t, const Sequence& s, const QueryTile& tile, Interval keys, float factor, float* out) {
  const i64 rows = tile.positions * tile.heads, stride = last_stride(t);
  for (i64 r = 0; r < kTileRows; ++r) {
    if (r >= rows) {
      for (i32 j = 0; j < keys.size(); ++j) out[j * kTileRows + r] = 0.0f;
      continue;
    }
    const float* row = bias_row(t, s, tile.first_row + r / tile.heads, tile.head + r % tile.heads) + keys.begin * stride;
    for (i32 j = 0; j < keys.size(); ++j) out[j * kTileRows + r] = row[j * stride] * factor;
  }
}

// One candidate group of a query tile: its keys, and the tile rows [first_row, end_row) that belong to it.
struct GroupRows {
  Interval keys;
  i64 first_row, end_row;
};

// Calls body(GroupRows) for every group with rows in the tile.
template <class Body>
inline void for_each_group(const MaskSpec& mask, const QueryTile& tile, Interval positions, const Body& body) {
  const Interval rows = intersect(positions, {mask.candidate_begin, mask.candidate_end});
  for (i32 p = rows.begin; p < rows.end;) {
    const Interval keys{group_begin(mask, p), group_end(mask, p)};
    const i32 end = min_of(keys.end, rows.end);
    body(GroupRows{keys, (p - positions.begin) * tile.heads, (end - positions.begin) * tile.heads});
    p = end;
  }
}

// c[dim][kPanel] = scale * c + add in the lanes of panel `panel_row` that lie in [first_row, end_row); the others keep every
// bit, whatever `add` holds there.
template <class Engine>
inline void add_lanes(const float* add, const float* scale, i64 panel_row, i64 first_row, i64 end_row, i64 dim, float* c) {
  for (i64 v = 0; v < Engine::kPanel; v += kLanes) {
    const auto lane = hn::Iota(kInt, static_cast<i32>(panel_row + v));
    const auto in = hn::RebindMask(kFloat, hn::And(hn::Gt(lane, hn::Set(kInt, static_cast<i32>(first_row - 1))),
                                                   hn::Lt(lane, hn::Set(kInt, static_cast<i32>(end_row)))));
    const Vec factor = scale == nullptr ? hn::Set(kFloat, 1.0f) : hn::LoadU(kFloat, scale + v);
    for (i64 d = 0; d < dim; ++d) {
      float* at = c + d * Engine::kPanel + v;
      const Vec old = hn::LoadU(kFloat, at);
      const Vec sum = hn::MulAdd(old, factor, hn::LoadU(kFloat, add + d * Engine::kPanel + v));
      hn::StoreU(hn::IfThenElse(in, sum, old), kFloat, at);
    }
  }
}

// Which sequence and KV head a query tile of the call belongs to, and its index there.
struct TilePlace {
  i64 sequence, head_kv, index;
};
inline TilePlace place_of(const Params& params, i64 item) {
  i64 low = 0, high = params.problem.batch;  // tile_begin[low] <= item < tile_begin[high]
  while (high - low > 1) {
    const i64 middle = (low + high) / 2;
    (params.tile_begin[middle] <= item ? low : high) = middle;
  }
  const i64 local = item - params.tile_begin[low];
  const i64 per_head = num_query_tiles(params.problem, params.sequences[low]);
  return {low, local / per_head, local % per_head};
}

// Calls body.template operator()<T>() with the element type.
template <class Body>
inline void with_type(DType t, const Body& body) {
  if (t == DType::f32) body.template operator()<float>();
  if (t == DType::bf16) body.template operator()<bf16>();
  if (t == DType::f16) body.template operator()<f16>();
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
