// CPU forward. One work item is a query tile (cpu/tiling.h) against all keys it sees, or against one of num_splits parts of
// them:
//
//   for each key tile of the walk            S^T = K Q^T                 rows are keys, columns (lanes) are queries
//     mask, online softmax per lane          P^T, m, l
//     O^T = O^T * correction + V^T P^T
//   each row's own keys: large candidate groups as key tiles, small ones and short intervals key by key
//   O / l and lse; or, split, O, m and l for a second round of items that merges the parts
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
  float* bias;  // of the current key tile, times log2(e)
  QueryMask mask;

  ForwardScratch(const Problem& p, bool intervals, i64 max_seqlen_kv, Arena& arena)
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
        bias(arena.take<float>(p.bias ? kTileN * kTileRows : 0)),
        mask(intervals, max_seqlen_kv, arena) {}
};

// One part of the keys of a query tile: unnormalised output, maximum (of exponents to base 2) and sum of each row.
struct Partial {
  float *out, *row_max, *row_sum;

  Partial(const Problem& p, char* memory) {
    Arena arena(memory);
    out = arena.take<float>(kTileRows * padded(p.head_dim_v));
    row_max = arena.take<float>(kTileRows);
    row_sum = arena.take<float>(kTileRows);
    size = arena.used();
  }
  i64 size;
};

// Online softmax of one panel: scores [keys][kPanel] become probabilities; `correction` is what old sums and outputs are
// to be multiplied with. V vectors of lanes starting at tile row `row`.
template <class Engine, int V>
void softmax_panel(const Problem& problem, const ScoreMap& map, const KvTile& tile, i64 row, ForwardScratch<Engine>& s) {
  const bool partial = tile.tile_class == TileClass::partial;
  const i32 count = tile.keys.size();
  const Vec minus_infinity = hn::Set(kFloat, -kInfinity);
  Vec top[V], base[V], sum[V];
  for (int v = 0; v < V; ++v) top[v] = hn::LoadU(kFloat, s.row_max + row + v * kLanes);
  for (i32 j = 0; j < count; ++j) {
    float* at = s.scores + j * Engine::kPanel;
    for (int v = 0; v < V; ++v) {
      Vec t = map.exponent(hn::LoadU(kFloat, at + v * kLanes));
      if (problem.bias) t = hn::Add(t, hn::LoadU(kFloat, s.bias + j * kTileRows + row + v * kLanes));
      if (partial) t = hn::IfThenElse(s.mask.sees(row + v * kLanes, tile.keys.begin + j), t, minus_infinity);
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
    sum[v] = hn::Zero(kFloat);
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
  // Tile sums are added to the row's, not key after key: with millions of keys a float would stop growing.
  for (int v = 0; v < V; ++v) {
    float* const at = s.row_sum + row + v * kLanes;
    const Vec correction = hn::LoadU(kFloat, s.correction + v * kLanes);
    hn::StoreU(hn::MulAdd(hn::LoadU(kFloat, at), correction, sum[v]), kFloat, at);
  }
}

// Keys that the row takes one at a time; out_row is the unnormalised output so far, bias the row's or null.
template <class T>
void add_keys(const ScoreMap& map, const Problem& p, Interval own, const float* q_row, const float* bias, i64 bias_stride,
              KeyRow<T>& keys, KeyRow<T>& values, float& row_max, float& row_sum, float* out_row) {
  for (i32 j = own.begin; j < own.end; ++j) {
    float t = hn::GetLane(map.exponent(hn::Set(kFloat, dot(q_row, keys.at(j), p.head_dim))));
    if (bias != nullptr) t += bias[j * bias_stride] * static_cast<float>(kLog2E);
    const float top = t > row_max || t != t ? t : row_max;
    const float base = top == -kInfinity ? 0.0f : top;  // as in softmax_panel
    const float correction = hn::GetLane(exp2(hn::Set(kFloat, row_max - base)));
    const float probability = hn::GetLane(exp2(hn::Set(kFloat, t - base)));
    row_sum = row_sum * correction + probability;
    row_max = top;
    blend(out_row, correction, values.at(j), probability, p.head_dim_v);
  }
}

// Writes one row of out and lse: out_row / row_sum, with the sink in the sum.
template <class T>
void write_result(const Problem& p, const ForwardTensors& tensors, const Sequence& sequence, i64 i, i64 head, float row_max,
                  float row_sum, const float* out_row) {
  const i64 row = sequence.q_row_begin + i;
  T* out = row_pointer<T>(tensors.out, sequence.q_batch, row, head);
  float factor = 1.0f / row_sum;
  double lse = -kInfinity;
  if (row_sum != 0.0f) lse = (static_cast<double>(row_max) + log2(static_cast<double>(row_sum))) * kLn2;
  if (p.sink) {
    const double sink = static_cast<const float*>(tensors.sink.data)[head * tensors.sink.strides[0]];
    const double keys = lse, top = keys > sink ? keys : sink;
    lse = top == -kInfinity ? top : top + log(exp(keys - top) + exp(sink - top));
    factor *= static_cast<float>(exp(keys - lse));
  }
  if (row_sum == 0.0f) {
    for (i64 d = 0; d < p.head_dim_v; ++d) out[d * last_stride(tensors.out)] = from_float<T>(0.0f);
  } else {
    write_row(out_row, p.head_dim_v, factor, out, last_stride(tensors.out));
  }
  if (given(tensors.lse)) *lse_pointer(tensors.lse, sequence.q_batch, head, row) = static_cast<float>(lse);
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
  QueryTile tile;
  KeySource<T> key_source{tensors.k, tensors.k_new, sequence, head_kv, p.head_dim};
  KeySource<T> value_source{tensors.v, tensors.v_new, sequence, head_kv, p.head_dim_v};
  typename Engine::Rows keys{}, values{};  // values transposed

  // Reads K, V and bias of a key tile.
  void load(Interval at) {
    keys = key_rows<Engine, T>(key_source, at, s.key_copy);
    values = key_rows<Engine, T>(value_source, at, s.value_copy);
    values = Engine::keys_transposed(values, at.size(), p.head_dim_v, s.values_transposed);
    if (p.bias) read_bias(tensors.bias, sequence, tile, at, static_cast<float>(kLog2E), s.bias);
  }

  // Probabilities and corrections of the panel that starts at tile row `row`.
  void probabilities(const KvTile& kv, i64 row, i64 columns) {
    const i64 vectors = Engine::vectors(columns);
    Engine::multiply_rows(keys, kv.keys.size(), p.head_dim, s.q_panels + row * padded(p.head_dim), s.scores, columns);
    if (vectors == 3) softmax_panel<Engine, 3>(p, map, kv, row, s);
    if (vectors == 2) softmax_panel<Engine, 2>(p, map, kv, row, s);
    if (vectors == 1) softmax_panel<Engine, 1>(p, map, kv, row, s);
  }

  template <Old old>
  void multiply_values(const KvTile& kv, i64 columns, float* out) {
    Engine::template multiply_transposed<old>(values, kv.keys.size(), p.head_dim_v,
                                              Engine::probabilities(s.scores, s.probabilities), out, columns, s.correction);
  }

  void shared(const KvTile& kv, i64 rows, bool first) {
    load(kv.keys);
    for (i64 row = 0; row < rows; row += kPanel) {
      const i64 columns = min_of<i64>(kPanel, rows - row);
      float* const out = s.out_panels + row * padded(p.head_dim_v);
      probabilities(kv, row, columns);
      if (first)
        multiply_values<Old::overwrite>(kv, columns, out);
      else
        multiply_values<Old::scale>(kv, columns, out);
    }
  }

  // The panels are shared with other groups, whose lanes must not notice: the product goes through group_out.
  void group(const GroupRows& group, i64 rows) {
    for (i32 key = group.keys.begin; key < group.keys.end; key += kTileN) {
      const KvTile kv{{key, min_of(key + kTileN, group.keys.end)}, TileClass::partial};
      load(kv.keys);
      for (i64 row = group.first_row / kPanel * kPanel; row < group.end_row; row += kPanel) {
        const i64 columns = min_of<i64>(kPanel, rows - row);
        probabilities(kv, row, columns);
        multiply_values<Old::overwrite>(kv, columns, s.group_out);
        add_lanes<Engine>(s.group_out, s.correction, row, group.first_row, group.end_row, p.head_dim_v,
                          s.out_panels + row * padded(p.head_dim_v));
      }
    }
  }

  // Rows [panel_row, panel_row + rows): the keys they take one by one, then body(tile row, unnormalised output).
  template <class Body>
  void finish(i64 panel_row, i64 rows, bool own_keys, const Body& body) {
    const i64 ld_v = padded(p.head_dim_v);
    transpose(s.out_panels + panel_row * ld_v, kPanel, p.head_dim_v, rows, s.out_rows, ld_v);
    KeyRow<T> key_row(key_source, s.key_row), value_row(value_source, s.value_row);
    for (i64 i = 0; i < rows; ++i) {
      const i64 r = panel_row + i, row = tile.first_row + r / tile.heads, head = tile.head + r % tile.heads;
      float* const out_row = s.out_rows + i * ld_v;
      for (int n = 0; own_keys && n < s.mask.own_count(); ++n) {
        const Interval own = s.mask.own(r, n);
        if (own.empty()) continue;
        const float* q = float_row(row_pointer<const T>(tensors.q, sequence.q_batch, sequence.q_row_begin + row, head),
                                   last_stride(tensors.q), p.head_dim, s.query_row);
        const float* bias = p.bias ? bias_row(tensors.bias, sequence, row, head) : nullptr;
        add_keys(map, p, own, q, bias, p.bias ? last_stride(tensors.bias) : 0, key_row, value_row, s.row_max[r],
                 s.row_sum[r], out_row);
      }
      body(r, out_row);
    }
  }
};

// Keys of part `split`: whole key tiles, of both grids of QueryMask.
inline Interval split_keys(const Params& params, const Sequence& s, i64 split) {
  const i64 tiles = ceil_div<i64>(s.seqlen_kv, kTileN), n = params.num_splits;
  const i64 end = split + 1 == n ? kMaxSeqlen : (split + 1) * tiles / n * kTileN;
  return {static_cast<i32>(split * tiles / n * kTileN), static_cast<i32>(end)};
}

template <class Engine, class T>
void forward_tile(const Params& params, const ForwardTensors& tensors, i64 item, i64 split, char* scratch) {
  const Problem& p = params.problem;
  const TilePlace place = place_of(params, item);
  const Sequence& sequence = params.sequences[place.sequence];
  const QueryTile tile = query_tile(p, sequence, place.head_kv, place.index);
  const i64 rows = tile.positions * tile.heads, ld_q = padded(p.head_dim), ld_v = padded(p.head_dim_v);
  Arena arena(scratch);
  ForwardScratch<Engine> s(p, params.intervals, params.max_seqlen_kv, arena);
  [[maybe_unused]] const typename Engine::Session session;
  ForwardTile<Engine, T> work{tensors, p, sequence, place.head_kv, ScoreMap(p), s, tile};

  read_query_rows<Engine, T>(tensors.q, sequence, tile, p.head_dim, s.q_rows);
  Engine::panels(s.q_rows, rows, ld_q, s.q_panels);
  for (i64 r = 0; r < kTileRows; ++r) s.row_max[r] = -kInfinity, s.row_sum[r] = 0.0f;

  s.mask.start(sequence, tile, split_keys(params, sequence, split));
  bool first = true;
  for (KvTile keys; s.mask.next(keys); first = false) work.shared(keys, rows, first);
  if (first)
    for (i64 k = 0; k < kTileRows * ld_v; ++k) s.out_panels[k] = 0.0f;
  // A row's own keys go with the last part.
  const bool last = split + 1 == params.num_splits;
  if (last && s.mask.has_group_tiles()) {
    s.mask.turn_to_groups();
    for_each_group(sequence.mask, tile, positions_of(sequence, tile),
                   [&](const GroupRows& group) { work.group(group, rows); });
  }
  const auto result = [&](i64 r, const float* out_row) {
    write_result<T>(p, tensors, sequence, tile.first_row + r / tile.heads, tile.head + r % tile.heads, s.row_max[r],
                    s.row_sum[r], out_row);
  };
  const auto part = [&](i64 r, const float* out_row) {
    const Partial to(p, params.partials + (item * params.num_splits + split) * params.partial_size);
    __builtin_memcpy(to.out + r * ld_v, out_row, static_cast<unsigned long>(p.head_dim_v) * sizeof(float));
    to.row_max[r] = s.row_max[r], to.row_sum[r] = s.row_sum[r];
  };
  for (i64 row = 0; row < rows; row += Engine::kPanel) {
    const i64 count = min_of<i64>(Engine::kPanel, rows - row);
    if (params.num_splits == 1)
      work.finish(row, count, last, result);
    else
      work.finish(row, count, last, part);
  }
}

// Merges the parts of a query tile, in ascending order.
template <class T>
void merge_tile(const Params& params, const ForwardTensors& tensors, i64 item, char* scratch) {
  const Problem& p = params.problem;
  const TilePlace place = place_of(params, item);
  const Sequence& sequence = params.sequences[place.sequence];
  const QueryTile tile = query_tile(p, sequence, place.head_kv, place.index);
  const i64 ld_v = padded(p.head_dim_v);
  float* const out_row = reinterpret_cast<float*>(scratch);
  const auto part = [&](i64 n) {
    return Partial(p, params.partials + (item * params.num_splits + n) * params.partial_size);
  };
  for (i64 r = 0; r < tile.positions * tile.heads; ++r) {
    float top = -kInfinity, sum = 0.0f;
    for (i64 n = 0; n < params.num_splits; ++n) {
      const float m = part(n).row_max[r];
      if (m > top || m != m) top = m;
    }
    const float base = top == -kInfinity ? 0.0f : top;
    for (i64 d = 0; d < p.head_dim_v; ++d) out_row[d] = 0.0f;
    for (i64 n = 0; n < params.num_splits; ++n) {
      const Partial from = part(n);
      const float weight = hn::GetLane(exp2(hn::Set(kFloat, from.row_max[r] - base)));
      sum += weight * from.row_sum[r];
      blend(out_row, 1.0f, from.out + r * ld_v, weight, p.head_dim_v);
    }
    write_result<T>(p, tensors, sequence, tile.first_row + r / tile.heads, tile.head + r % tile.heads, top, sum, out_row);
  }
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

  i64 tiles() const { return params.tile_begin[params.problem.batch]; }
};

template <class T>
void forward_task(void* context, i64 item, int worker) {
  const Call& call = *static_cast<const Call*>(context);
  const Params& params = call.params;
  const i64 items = call.tiles() * params.num_splits;
  if (item >= items) return clear_tail<T>(params.problem, call.tensors, params.sequences[item - items]);
  forward_tile<typename EngineFor<T>::type, T>(params, call.tensors, item / params.num_splits, item % params.num_splits,
                                               params.scratch + worker * params.scratch_stride);
}

template <class T>
void merge_task(void* context, i64 item, int worker) {
  const Call& call = *static_cast<const Call*>(context);
  merge_tile<T>(call.params, call.tensors, item, call.params.scratch + worker * call.params.scratch_stride);
}

}  // namespace

i64 forward_scratch(const Problem& problem, bool intervals, i64 max_seqlen_kv) {
  Arena arena(nullptr);
  with_type(problem.dtype,
            [&]<class T>() { ForwardScratch<typename EngineFor<T>::type>(problem, intervals, max_seqlen_kv, arena); });
  return arena.used();
}

i64 partial_size(const Problem& problem) { return Partial(problem, nullptr).size; }

void forward(const Params& params, const ForwardTensors& tensors) {
  Call call{params, tensors};
  const Parallel& parallel = params.parallel;
  with_type(params.problem.dtype, [&]<class T>() {
    parallel.run(parallel.pool, call.tiles() * params.num_splits + params.problem.batch, forward_task<T>, &call);
    if (params.num_splits > 1) parallel.run(parallel.pool, call.tiles(), merge_task<T>, &call);
  });
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
