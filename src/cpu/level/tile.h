// Pieces that forward and backward share: scratch memory, the rows of a query tile, key tiles, masks.
#pragma once

#include ISO_CPU_ENGINE
#include "cpu/level/vector_math.h"
#include "cpu/params.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// Leading dimension of a row of n elements: whole vectors, strips and blocks of every engine.
inline i64 padded(i64 n) { return align_up<i64>(n, 32); }

// Hands out pieces of a worker's scratch. With a null base it only counts, so one function gives size and layout.
class Arena {
 public:
  explicit Arena(char* base) : base_(base) {}
  template <class T>
  T* take(i64 count) {
    T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += align_up<i64>(count * static_cast<i64>(sizeof(T)), 64);
    return at;
  }
  i64 used() const { return used_; }

 private:
  char* base_;
  i64 used_ = 0;
};

// Candidate groups of at least this many keys are multiplied as tiles, smaller ones key by key.
inline constexpr i32 kGroupTile = 32;

// What each row (lane) of a query tile sees: in the context and the history, or (fill_groups) of its candidate group.
struct RowMasks {
  i32* context_end;    // keys [0, context_end)
  i32* history_begin;  // and [history_begin, history_begin + history_size)
  i32* history_size;

  explicit RowMasks(Arena& arena)
      : context_end(arena.take<i32>(kTileRows)),
        history_begin(arena.take<i32>(kTileRows)),
        history_size(arena.take<i32>(kTileRows)) {}

  void fill(const MaskSpec& mask, const QueryTile& tile, Interval positions) {
    i64 r = 0;
    for (i32 p = positions.begin; p < positions.end; ++p) {
      const Role role = role_at(mask, p);
      Interval history = role == Role::history ? history_seen(mask, p) : Interval{mask.history_begin, mask.history_end};
      if (role == Role::padding || history.empty()) history = {};
      for (i64 h = 0; h < tile.heads; ++h, ++r) {
        context_end[r] = role == Role::padding ? 0 : mask.context_end;
        history_begin[r] = history.begin;
        history_size[r] = history.size();
      }
    }
    for (; r < kTileRows; ++r) context_end[r] = history_begin[r] = history_size[r] = 0;
  }

  // Own groups instead, as the history part.
  void fill_groups(const MaskSpec& mask, const QueryTile& tile, Interval positions) {
    i64 r = 0;
    for (i32 p = positions.begin; p < positions.end; ++p) {
      const bool candidate = role_at(mask, p) == Role::candidate;
      const Interval group = candidate ? Interval{group_begin(mask, p), group_end(mask, p)} : Interval{};
      for (i64 h = 0; h < tile.heads; ++h, ++r) {
        context_end[r] = 0;
        history_begin[r] = group.begin;
        history_size[r] = group.size();
      }
    }
    for (; r < kTileRows; ++r) context_end[r] = history_begin[r] = history_size[r] = 0;
  }

  // Lanes [row, row + kLanes) that see key j.
  HWY_INLINE auto sees(i64 row, i32 j) const {
    const UintTag du;
    const auto key = hn::Set(kInt, j);
    const auto context = hn::Lt(key, hn::LoadU(kInt, context_end + row));
    const auto offset = hn::BitCast(du, hn::Sub(key, hn::LoadU(kInt, history_begin + row)));
    const auto history = hn::Lt(offset, hn::BitCast(du, hn::LoadU(kInt, history_size + row)));
    return hn::RebindMask(kFloat, hn::Or(context, hn::RebindMask(kInt, history)));
  }
};

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

// K or V rows of a key tile as an operand.
template <class Engine, class T>
inline typename Engine::Rows key_rows(const Tensor& t, const Sequence& s, Interval keys, i64 head, i64 dim,
                                      typename Engine::Element* copy) {
  const T* first = row_pointer<const T>(t, s.kv_batch, s.kv_row_begin + keys.begin, head);
  return Engine::key_rows(first, t.strides[t.rank - 3], last_stride(t), keys.size(), dim, copy, padded(dim));
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
  KeyRow(const Tensor& t, const Sequence& s, i64 head, i64 dim, float* copy)
      : tensor_(t), sequence_(s), head_(head), dim_(dim), copy_(copy) {}
  const float* at(i32 j) {
    if (j != current_) {
      const T* row = row_pointer<const T>(tensor_, sequence_.kv_batch, sequence_.kv_row_begin + j, head_);
      row_ = float_row(row, last_stride(tensor_), dim_, copy_);
      current_ = j;
    }
    return row_;
  }

 private:
  const Tensor& tensor_;
  const Sequence& sequence_;
  i64 head_, dim_;
  float* copy_;
  const float* row_ = nullptr;
  i32 current_ = -1;
};

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
