// CPU forward. One work item is a query tile (cpu/tiling.h) against all keys it sees:
//
//   for each key tile of the walk            S^T = K Q^T                 rows are keys, columns (lanes) are queries
//     mask, online softmax per lane          P^T, m, l
//     O^T = O^T * correction + V^T P^T
//   each row's own candidate group: large groups as key tiles, small ones key by key; then O / l and lse
//
// Everything is transposed so that a lane is a query: row statistics need no shuffles, masks are lane compares, K is
// read as it lies, and a row never mixes with another: a NaN in one candidate cannot reach the next.
#include "cpu/level/forward.h"

#include <math.h>

#include "cpu/level/tile.h"

namespace iso::cpu {
inline namespace ISO_TARGET {
namespace {

constexpr float kInfinity = __builtin_inff();

template <class Engine>
struct ForwardScratch {
  using Element = typename Engine::Element;
  Element *q_rows, *q_panels, *key_copy, *value_copy, *values_transposed, *probabilities;
  float *out_panels, *out_rows, *group_out, *scores, *row_max, *row_sum, *correction, *query_row, *key_row, *value_row;
  RowMasks masks;

  ForwardScratch(const Problem& p, Arena& arena)
      : q_rows(arena.take<Element>(kTileRows * padded(p.head_dim))),
        q_panels(arena.take<Element>(kTileRows * padded(p.head_dim))),
        key_copy(arena.take<Element>(kTileN * padded(p.head_dim))),
        value_copy(arena.take<Element>(kTileN * padded(p.head_dim_v))),
        values_transposed(arena.take<Element>(Engine::kBlocks ? kTileN * padded(p.head_dim_v) : 0)),
        probabilities(arena.take<Element>(kTileN * Engine::kPanel)),
        out_panels(arena.take<float>(kTileRows * padded(p.head_dim_v))),
        out_rows(arena.take<float>(Engine::kPanel * padded(p.head_dim_v))),
        group_out(arena.take<float>(Engine::kPanel * padded(p.head_dim_v))),
        scores(arena.take<float>(kTileN * Engine::kPanel)),
        row_max(arena.take<float>(kTileRows)),
        row_sum(arena.take<float>(kTileRows)),
        correction(arena.take<float>(Engine::kPanel)),
        query_row(arena.take<float>(padded(p.head_dim))),
        key_row(arena.take<float>(padded(p.head_dim))),
        value_row(arena.take<float>(padded(p.head_dim_v))),
        masks(arena) {}
};

// Online softmax of one panel: scores [keys][kPanel] become probabilities; `correction` is what old sums and outputs are
// to be multiplied with. V vectors of lanes starting at tile row `row`.
template <class Engine, int V>
void softmax_panel(const ScoreMap& map, const KvTile& tile, i64 row, ForwardScratch<Engine>& s) {
  const bool partial = tile.tile_class == TileClass::partial;
  const i32 count = tile.keys.size();
  const Vec minus_infinity = hn::Set(kFloat, -kInfinity);
  Vec top[V], base[V], sum[V];
  for (int v = 0; v < V; ++v) top[v] = hn::LoadU(kFloat, s.row_max + row + v * kLanes);
  for (i32 j = 0; j < count; ++j) {
    float* at = s.scores + j * Engine::kPanel;
    for (int v = 0; v < V; ++v) {
      Vec t = map.exponent(hn::LoadU(kFloat, at + v * kLanes));
      if (partial) t = hn::IfThenElse(s.masks.sees(row + v * kLanes, tile.keys.begin + j), t, minus_infinity);
      top[v] = hn::Max(t, top[v]);
      hn::StoreU(t, kFloat, at + v * kLanes);
    }
  }
  for (int v = 0; v < V; ++v) {
    // A row that has seen nothing yet keeps maximum -inf; subtracting 0 instead gives it exp2(-inf) = 0 throughout.
    base[v] = hn::IfThenZeroElse(hn::Eq(top[v], minus_infinity), top[v]);
    const Vec correction = exp2(hn::Sub(hn::LoadU(kFloat, s.row_max + row + v * kLanes), base[v]));
    hn::StoreU(top[v], kFloat, s.row_max + row + v * kLanes);
    hn::StoreU(correction, kFloat, s.correction + v * kLanes);
    sum[v] = hn::Mul(hn::LoadU(kFloat, s.row_sum + row + v * kLanes), correction);
  }
  auto* const probabilities = Engine::probabilities(s.scores, s.probabilities);
  const auto probability = [&](i32 j, int v) {
    if (j >= count) return hn::Zero(kFloat);
    const Vec p = exp2(hn::Sub(hn::LoadU(kFloat, s.scores + j * Engine::kPanel + v * kLanes), base[v]));
    sum[v] = hn::Add(sum[v], p);
    return p;
  };
  for (i32 j = 0; j < count; j += 2)
    for (int v = 0; v < V; ++v) {
      const Vec even = probability(j, v);
      const Vec odd = probability(j + 1, v);
      Engine::store_two(probabilities, j, v * kLanes, even, odd);
    }
  Engine::finish_probabilities(probabilities, count);
  for (int v = 0; v < V; ++v) hn::StoreU(sum[v], kFloat, s.row_sum + row + v * kLanes);
}

// The row's own candidate group, one key at a time; out_row is the unnormalised output so far.
template <class T>
void add_group(const ScoreMap& map, const Problem& p, Interval group, const float* q_row, KeyRow<T>& keys,
               KeyRow<T>& values, float& row_max, float& row_sum, float* out_row) {
  for (i32 j = group.begin; j < group.end; ++j) {
    const float t = hn::GetLane(map.exponent(hn::Set(kFloat, dot(q_row, keys.at(j), p.head_dim))));
    const float top = t > row_max || t != t ? t : row_max;
    const float base = top == -kInfinity ? 0.0f : top;  // as in softmax_panel
    const float correction = hn::GetLane(exp2(hn::Set(kFloat, row_max - base)));
    const float probability = hn::GetLane(exp2(hn::Set(kFloat, t - base)));
    row_sum = row_sum * correction + probability;
    row_max = top;
    blend(out_row, correction, values.at(j), probability, p.head_dim_v);
  }
}

// Rows [panel_row, panel_row + rows) of the tile: own group, normalisation, output.
template <class Engine, class T>
void finish_panel(const Params& params, const ForwardTensors& tensors, const Sequence& sequence, i64 head_kv,
                  const QueryTile& tile, const ScoreMap& map, i64 panel_row, i64 rows, ForwardScratch<Engine>& s) {
  const Problem& p = params.problem;
  const i64 ld_v = padded(p.head_dim_v);
  transpose(s.out_panels + panel_row * ld_v, Engine::kPanel, p.head_dim_v, rows, s.out_rows, ld_v);
  KeyRow<T> keys(tensors.k, sequence, head_kv, p.head_dim, s.key_row);
  KeyRow<T> values(tensors.v, sequence, head_kv, p.head_dim_v, s.value_row);
  const Interval positions = positions_of(sequence, tile);
  for (i64 i = 0; i < rows; ++i) {
    const i64 r = panel_row + i, position = r / tile.heads, head = tile.head + r % tile.heads;
    const i64 row = sequence.q_row_begin + tile.first_row + position;
    float* out_row = s.out_rows + i * ld_v;
    const i32 at = positions.begin + static_cast<i32>(position);
    if (role_at(sequence.mask, at) == Role::candidate && sequence.mask.candidate_group_size < kGroupTile) {
      const float* q = float_row(row_pointer<const T>(tensors.q, sequence.q_batch, row, head), last_stride(tensors.q),
                                 p.head_dim, s.query_row);
      add_group(map, p, {group_begin(sequence.mask, at), group_end(sequence.mask, at)}, q, keys, values, s.row_max[r],
                s.row_sum[r], out_row);
    }
    const float sum = s.row_sum[r];
    T* out = row_pointer<T>(tensors.out, sequence.q_batch, row, head);
    if (sum == 0.0f) {
      for (i64 d = 0; d < p.head_dim_v; ++d) out[d * last_stride(tensors.out)] = from_float<T>(0.0f);
    } else {
      write_row(out_row, p.head_dim_v, 1.0f / sum, out, last_stride(tensors.out));
    }
    if (given(tensors.lse))
      *lse_pointer(tensors.lse, sequence.q_batch, head, row) =
          sum == 0.0f ? -kInfinity
                      : static_cast<float>((static_cast<double>(s.row_max[r]) + log2(static_cast<double>(sum))) * kLn2);
  }
}

// A key tile against all its rows, or the rows of a group against keys of their own.
template <class Engine, class T>
struct ForwardTile {
  static constexpr i64 kPanel = Engine::kPanel;
  const ForwardTensors& tensors;
  const Problem& p;
  const Sequence& sequence;
  i64 head_kv;
  ScoreMap map;
  ForwardScratch<Engine>& s;
  typename Engine::Rows keys, values;  // values transposed

  // Reads K and V of the tile.
  void load(Interval tile) {
    keys = key_rows<Engine, T>(tensors.k, sequence, tile, head_kv, p.head_dim, s.key_copy);
    values = key_rows<Engine, T>(tensors.v, sequence, tile, head_kv, p.head_dim_v, s.value_copy);
    values = Engine::keys_transposed(values, tile.size(), p.head_dim_v, s.values_transposed);
  }

  // Probabilities and corrections of the panel that starts at tile row `row`.
  void probabilities(const KvTile& tile, i64 row, i64 columns) {
    const i64 vectors = Engine::vectors(columns);
    Engine::multiply_rows(keys, tile.keys.size(), p.head_dim, s.q_panels + row * padded(p.head_dim), s.scores, columns);
    if (vectors == 3) softmax_panel<Engine, 3>(map, tile, row, s);
    if (vectors == 2) softmax_panel<Engine, 2>(map, tile, row, s);
    if (vectors == 1) softmax_panel<Engine, 1>(map, tile, row, s);
  }

  template <Old old>
  void multiply_values(const KvTile& tile, i64 columns, float* out) {
    Engine::template multiply_transposed<old>(values, tile.keys.size(), p.head_dim_v,
                                              Engine::probabilities(s.scores, s.probabilities), out, columns, s.correction);
  }

  void shared(const KvTile& tile, i64 rows, bool first) {
    load(tile.keys);
    for (i64 row = 0; row < rows; row += kPanel) {
      const i64 columns = min_of<i64>(kPanel, rows - row);
      float* const out = s.out_panels + row * padded(p.head_dim_v);
      probabilities(tile, row, columns);
      if (first)
        multiply_values<Old::overwrite>(tile, columns, out);
      else
        multiply_values<Old::scale>(tile, columns, out);
    }
  }

  // The panels are shared with other groups, whose lanes must not notice: the product goes through group_out.
  void group(const GroupRows& group, i64 rows) {
    for (i32 key = group.keys.begin; key < group.keys.end; key += kTileN) {
      const KvTile tile{{key, min_of(key + kTileN, group.keys.end)}, TileClass::partial};
      load(tile.keys);
      for (i64 row = group.first_row / kPanel * kPanel; row < group.end_row; row += kPanel) {
        const i64 columns = min_of<i64>(kPanel, rows - row);
        probabilities(tile, row, columns);
        multiply_values<Old::overwrite>(tile, columns, s.group_out);
        add_lanes<Engine>(s.group_out, s.correction, row, group.first_row, group.end_row, p.head_dim_v,
                          s.out_panels + row * padded(p.head_dim_v));
      }
    }
  }
};

template <class Engine, class T>
void forward_tile(const Params& params, const ForwardTensors& tensors, const TilePlace& place, char* scratch) {
  const Problem& p = params.problem;
  const Sequence& sequence = params.sequences[place.sequence];
  const QueryTile tile = query_tile(p, sequence, place.head_kv, place.index);
  const Interval positions = positions_of(sequence, tile);
  const i64 rows = tile.positions * tile.heads, ld_q = padded(p.head_dim), ld_v = padded(p.head_dim_v);
  Arena arena(scratch);
  ForwardScratch<Engine> s(p, arena);
  [[maybe_unused]] const typename Engine::Session session;
  ForwardTile<Engine, T> work{tensors, p, sequence, place.head_kv, ScoreMap(p), s, {}, {}};

  read_query_rows<Engine, T>(tensors.q, sequence, tile, p.head_dim, s.q_rows);
  Engine::panels(s.q_rows, rows, ld_q, s.q_panels);
  s.masks.fill(sequence.mask, tile, positions);
  for (i64 r = 0; r < kTileRows; ++r) s.row_max[r] = -kInfinity, s.row_sum[r] = 0.0f;

  KvWalk walk(sequence.mask, positions, kTileN);
  bool first = true;
  for (KvTile keys; walk.next(keys); first = false) work.shared(keys, rows, first);
  if (first)
    for (i64 k = 0; k < kTileRows * ld_v; ++k) s.out_panels[k] = 0.0f;
  if (sequence.mask.candidate_group_size >= kGroupTile && !candidate_keys(sequence.mask, positions).empty()) {
    s.masks.fill_groups(sequence.mask, tile, positions);
    for_each_group(sequence.mask, tile, positions, [&](const GroupRows& group) { work.group(group, rows); });
  }
  for (i64 row = 0; row < rows; row += Engine::kPanel)
    finish_panel<Engine, T>(params, tensors, sequence, place.head_kv, tile, work.map, row,
                            min_of<i64>(Engine::kPanel, rows - row), s);
}

// Rows of a sequence's slot past those in use: zeros, lse -inf.
template <class T>
void clear_tail(const Problem& p, const ForwardTensors& tensors, const Sequence& s) {
  for (i64 i = s.seqlen_q; i < s.slot_q; ++i)
    for (i64 h = 0; h < p.num_heads_q; ++h) {
      T* out = row_pointer<T>(tensors.out, s.q_batch, s.q_row_begin + i, h);
      for (i64 d = 0; d < p.head_dim_v; ++d) out[d * last_stride(tensors.out)] = from_float<T>(0.0f);
      if (given(tensors.lse)) *lse_pointer(tensors.lse, s.q_batch, h, s.q_row_begin + i) = -kInfinity;
    }
}

struct Call {
  const Params& params;
  const ForwardTensors& tensors;
};

template <class T>
void forward_task(void* context, i64 item, int worker) {
  const Call& call = *static_cast<const Call*>(context);
  const Params& params = call.params;
  const i64 tiles = params.tile_begin[params.problem.batch];
  if (item >= tiles) return clear_tail<T>(params.problem, call.tensors, params.sequences[item - tiles]);
  forward_tile<typename EngineFor<T>::type, T>(params, call.tensors, place_of(params, item),
                                               params.scratch + worker * params.scratch_stride);
}

}  // namespace

i64 forward_scratch(const Problem& problem) {
  Arena arena(nullptr);
  with_type(problem.dtype, [&]<class T>() { ForwardScratch<typename EngineFor<T>::type>(problem, arena); });
  return arena.used();
}

void forward(const Params& params, const ForwardTensors& tensors) {
  Call call{params, tensors};
  const i64 items = params.tile_begin[params.problem.batch] + params.problem.batch;
  with_type(params.problem.dtype,
            [&]<class T>() { params.parallel.run(params.parallel.pool, items, forward_task<T>, &call); });
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
