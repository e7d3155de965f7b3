// CPU backward. For a query tile (cpu/tiling.h) and each key tile of its walk, everything transposed as in the forward:
//
//   S^T = K Q^T,  dP^T = V dO^T
//   P^T = exp(S^T - lse),  dS^T = P^T (dP^T - D) softcap'          D = rowsum(dO∘O) - dlse
//   dQ^T += K^T dS^T,  dV += P^T dO,  dK += dS^T Q
//
// and for each row its own candidate group: large groups as key tiles, small ones key by key. dK and dV are summed in float32 in the worker's scratch.
//
// One pass: a work item is a sequence and KV head, all five products in it. Where there are too few of those for the
// workers, or a sequence is too long for the scratch, two passes: items that own a chunk of keys sum dK and dV, items that
// own a query tile sum dQ, at the price of two products done twice. Sums run in the same order either way, so the results
// are the same bits.
#include "cpu/level/backward.h"

#include "cpu/level/tile.h"

namespace iso::cpu {
inline namespace ISO_TARGET {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr i64 kOnePassKeys = 4096;  // longest sequence whose dK and dV sums are kept in scratch
constexpr i64 kChunkKeys = 512;     // keys of one work item in two passes; a multiple of kTileN

template <class Engine>
struct BackwardScratch {
  using Element = typename Engine::Element;
  Element *q_rows, *q_panels, *q_columns, *dout_rows, *dout_panels, *dout_columns;
  Element *key_copy, *keys_transposed, *value_copy;
  Element *dscore_panel, *probability_rows, *dscore_rows, *group_rows;
  float *dq_panels, *dq_rows, *group_dq, *scores, *dprobabilities;
  float *lse, *delta, *query_row, *key_row, *value_row, *out_row, *dout_row;
  float *dk, *dv;
  const Element *q_operand = nullptr, *dout_operand = nullptr;  // Engine::columns of Q and dO
  RowMasks masks;

  BackwardScratch(const Problem& p, i64 max_seqlen_kv, Arena& arena)
      : q_rows(arena.take<Element>(kTileRows * padded(p.head_dim))),
        q_panels(arena.take<Element>(kTileRows * padded(p.head_dim))),
        q_columns(arena.take<Element>(kTileRows * padded(p.head_dim))),
        dout_rows(arena.take<Element>(kTileRows * padded(p.head_dim_v))),
        dout_panels(arena.take<Element>(kTileRows * padded(p.head_dim_v))),
        dout_columns(arena.take<Element>(kTileRows * padded(p.head_dim_v))),
        key_copy(arena.take<Element>(kTileN * padded(p.head_dim))),
        keys_transposed(arena.take<Element>(Engine::kBlocks ? kTileN * padded(p.head_dim) : 0)),
        value_copy(arena.take<Element>(kTileN * padded(p.head_dim_v))),
        dscore_panel(arena.take<Element>(kTileN * Engine::kPanel)),
        probability_rows(arena.take<Element>(kTileN * kTileRows)),
        dscore_rows(arena.take<Element>(kTileN * kTileRows)),
        group_rows(arena.take<Element>(kTileRows * padded(max_of(p.head_dim, p.head_dim_v)))),
        dq_panels(arena.take<float>(kTileRows * padded(p.head_dim))),
        dq_rows(arena.take<float>(Engine::kPanel * padded(p.head_dim))),
        group_dq(arena.take<float>(Engine::kPanel * padded(p.head_dim))),
        scores(arena.take<float>(kTileN * Engine::kPanel)),
        dprobabilities(arena.take<float>(kTileN * Engine::kPanel)),
        lse(arena.take<float>(kTileRows)),
        delta(arena.take<float>(kTileRows)),
        query_row(arena.take<float>(padded(p.head_dim))),
        key_row(arena.take<float>(padded(p.head_dim))),
        value_row(arena.take<float>(padded(p.head_dim_v))),
        out_row(arena.take<float>(padded(p.head_dim_v))),
        dout_row(arena.take<float>(padded(p.head_dim_v))),
        dk(arena.take<float>(min_of(max_of(max_seqlen_kv, kChunkKeys), kOnePassKeys) * padded(p.head_dim))),
        dv(arena.take<float>(min_of(max_of(max_seqlen_kv, kChunkKeys), kOnePassKeys) * padded(p.head_dim_v))),
        masks(arena) {}
};

// What a work item computes: gradients of `keys` (dk, dv) and / or of its query tiles (dq).
struct Share {
  const Params& params;
  const BackwardTensors& tensors;
  const Sequence& sequence;
  i64 head_kv;
  Interval keys;  // the walk is cut to these
  bool dq, dk, dv;
};

// Reads Q, dO, lse and D of a tile. Rows that see nothing become zeros, so that a NaN in them reaches no product.
template <class Engine, class T>
void read_tile(const Share& share, const QueryTile& tile, Interval positions, BackwardScratch<Engine>& s) {
  const Problem& p = share.params.problem;
  const BackwardTensors& t = share.tensors;
  const Sequence& sequence = share.sequence;
  const i64 ld_q = padded(p.head_dim), ld_v = padded(p.head_dim_v), rows = tile.positions * tile.heads;
  read_query_rows<Engine, T>(t.q, sequence, tile, p.head_dim, s.q_rows);
  read_query_rows<Engine, T>(t.dout, sequence, tile, p.head_dim_v, s.dout_rows);
  s.masks.fill(sequence.mask, tile, positions);
  for (i64 r = 0; r < kTileRows; ++r) s.lse[r] = kInfinity, s.delta[r] = 0.0f;
  for (i64 r = 0; r < rows; ++r) {
    const i64 row = sequence.q_row_begin + tile.first_row + r / tile.heads, head = tile.head + r % tile.heads;
    const float lse = *lse_pointer(t.lse, sequence.q_batch, head, row);
    const i32 position = positions.begin + static_cast<i32>(r / tile.heads);
    if (lse == -kInfinity || row_intervals(sequence.mask, position).count == 0) {
      for (i64 k = 0; k < ld_q; ++k) s.q_rows[r * ld_q + k] = {};
      for (i64 k = 0; k < ld_v; ++k) s.dout_rows[r * ld_v + k] = {};
      continue;
    }
    s.lse[r] = lse;
    const float* out =
        float_row(row_pointer<const T>(t.out, sequence.q_batch, row, head), last_stride(t.out), p.head_dim_v, s.out_row);
    const float* dout =
        float_row(row_pointer<const T>(t.dout, sequence.q_batch, row, head), last_stride(t.dout), p.head_dim_v, s.dout_row);
    s.delta[r] = dot(out, dout, p.head_dim_v);
    if (given(t.dlse)) s.delta[r] -= *lse_pointer(t.dlse, sequence.q_batch, head, row);
  }
  Engine::panels(s.q_rows, rows, ld_q, s.q_panels);
  Engine::panels(s.dout_rows, rows, ld_v, s.dout_panels);
  s.q_operand = Engine::columns(s.q_rows, rows, ld_q, s.q_columns);
  s.dout_operand = Engine::columns(s.dout_rows, rows, ld_v, s.dout_columns);
}

// Scores and dP of one panel become P and dS. V vectors of lanes starting at tile row `row`, `columns` of them in use.
template <class Engine, int V>
void score_gradients(const ScoreMap& map, const KvTile& tile, i64 row, i64 columns, BackwardScratch<Engine>& s) {
  constexpr i64 kPanel = Engine::kPanel;
  // Engines that multiply whole blocks take in the lanes not in use, where an infinite key times 0 would make P a NaN.
  const bool partial = tile.tile_class == TileClass::partial || (Engine::kBlocks && columns < kPanel);
  const i32 count = tile.keys.size();
  auto* const dscore_panel = Engine::probabilities(s.dprobabilities, s.dscore_panel);
  for (int v = 0; v < V; ++v) {
    const i64 lane = row + v * kLanes;
    const Vec lse = hn::LoadU(kFloat, s.lse + lane), delta = hn::LoadU(kFloat, s.delta + lane);
    const auto dscore = [&](i32 j) {
      if (j >= count) return hn::Zero(kFloat);
      Vec derivative;
      Vec p = map.probability(hn::LoadU(kFloat, s.scores + j * kPanel + v * kLanes), lse, derivative);
      Vec ds = hn::Mul(p, hn::Sub(hn::LoadU(kFloat, s.dprobabilities + j * kPanel + v * kLanes), delta));
      if (map.kind != SoftcapKind::none) ds = hn::Mul(ds, derivative);
      if (partial) {
        const auto sees = s.masks.sees(lane, tile.keys.begin + j);
        p = hn::IfThenElseZero(sees, p);
        ds = hn::IfThenElseZero(sees, ds);
      }
      Engine::store_row(s.probability_rows, j, lane, p);
      Engine::store_row(s.dscore_rows, j, lane, ds);
      return ds;
    };
    for (i32 j = 0; j < count; j += 2) {
      const Vec even = dscore(j);
      const Vec odd = dscore(j + 1);
      Engine::store_two(dscore_panel, j, v * kLanes, even, odd);
    }
  }
  Engine::finish_probabilities(dscore_panel, count);
}

// The key tiles of one query tile.
template <class Engine, class T>
struct BackwardTile {
  static constexpr i64 kPanel = Engine::kPanel;
  const Share& share;
  const Problem& p;
  i64 rows;
  ScoreMap map;
  BackwardScratch<Engine>& s;
  typename Engine::Rows keys, values, keys_transposed;

  void load(Interval tile) {
    keys = key_rows<Engine, T>(share.tensors.k, share.sequence, tile, share.head_kv, p.head_dim, s.key_copy);
    values = key_rows<Engine, T>(share.tensors.v, share.sequence, tile, share.head_kv, p.head_dim_v, s.value_copy);
    if (share.dq) keys_transposed = Engine::keys_transposed(keys, tile.size(), p.head_dim, s.keys_transposed);
  }

  // P and dS of the panel that starts at tile row `row`.
  void scores(const KvTile& tile, i64 row, i64 columns) {
    const i64 count = tile.keys.size(), vectors = Engine::vectors(columns);
    Engine::multiply_rows(keys, count, p.head_dim, s.q_panels + row * padded(p.head_dim), s.scores, columns);
    Engine::multiply_rows(values, count, p.head_dim_v, s.dout_panels + row * padded(p.head_dim_v), s.dprobabilities,
                          columns);
    if (vectors == 3) score_gradients<Engine, 3>(map, tile, row, columns, s);
    if (vectors == 2) score_gradients<Engine, 2>(map, tile, row, columns, s);
    if (vectors == 1) score_gradients<Engine, 1>(map, tile, row, columns, s);
  }

  template <Old old>
  void multiply_keys(const KvTile& tile, i64 columns, float* dq) {
    Engine::template multiply_transposed<old>(keys_transposed, tile.keys.size(), p.head_dim,
                                              Engine::probabilities(s.dprobabilities, s.dscore_panel), dq, columns);
  }

  // Adds to dk and dv what tile rows [first_row, first_row + count) give; q and dout are those rows as operands.
  void add_keys(const KvTile& tile, i64 first_row, i64 count, const typename Engine::Element* q,
                const typename Engine::Element* dout) {
    const i64 key = tile.keys.begin - share.keys.begin, ld_q = padded(p.head_dim), ld_v = padded(p.head_dim_v);
    if (share.dv)
      Engine::add_keys(s.probability_rows + first_row, tile.keys.size(), count, dout, ld_v, p.head_dim_v,
                       s.dv + key * ld_v);
    if (share.dk)
      Engine::add_keys(s.dscore_rows + first_row, tile.keys.size(), count, q, ld_q, p.head_dim, s.dk + key * ld_q);
  }

  void shared(const KvTile& tile, bool first) {
    load(tile.keys);
    for (i64 row = 0; row < rows; row += kPanel) {
      const i64 columns = min_of<i64>(kPanel, rows - row);
      float* const dq = s.dq_panels + row * padded(p.head_dim);
      scores(tile, row, columns);
      if (share.dq && first) multiply_keys<Old::overwrite>(tile, columns, dq);
      if (share.dq && !first) multiply_keys<Old::add>(tile, columns, dq);
    }
    add_keys(tile, 0, rows, s.q_operand, s.dout_operand);
  }

  // Only the group's rows enter the products, and only its lanes change: see ForwardTile::group.
  void group(const GroupRows& group) {
    const i64 ld_q = padded(p.head_dim), ld_v = padded(p.head_dim_v), first_panel = group.first_row / kPanel * kPanel;
    // Engines that multiply whole blocks take whole panels, with zeros for the rows of others.
    const i64 first_row = Engine::kBlocks ? first_panel : group.first_row;
    const auto* const q = group_operand(s.q_rows, group, first_row, ld_q, s.group_rows, s.q_columns);
    const auto* const dout = group_operand(s.dout_rows, group, first_row, ld_v, s.group_rows, s.dout_columns);
    const Interval own = intersect(group.keys, share.keys);
    for (i32 key = group.keys.begin; key < own.end; key += kTileN) {
      const KvTile tile{intersect({key, key + kTileN}, own), TileClass::partial};
      if (tile.keys.empty()) continue;
      load(tile.keys);
      for (i64 row = first_panel; row < group.end_row; row += kPanel) {
        const i64 columns = min_of<i64>(kPanel, rows - row);
        scores(tile, row, columns);
        if (!share.dq) continue;
        multiply_keys<Old::overwrite>(tile, columns, s.group_dq);
        add_lanes<Engine>(s.group_dq, nullptr, row, group.first_row, group.end_row, p.head_dim, s.dq_panels + row * ld_q);
      }
      add_keys(tile, first_row, group.end_row - first_row, q, dout);
    }
  }

  // Tile rows from first_row to the group's end as an operand of add_keys.
  static const typename Engine::Element* group_operand(const typename Engine::Element* rows, const GroupRows& group,
                                                       i64 first_row, i64 ld, typename Engine::Element* copy,
                                                       typename Engine::Element* columns) {
    if (!Engine::kBlocks) return rows + first_row * ld;
    const i64 count = align_up(group.end_row - first_row, kPanel);
    for (i64 k = 0; k < count * ld; ++k) copy[k] = {};
    __builtin_memcpy(copy + (group.first_row - first_row) * ld, rows + group.first_row * ld,
                     static_cast<unsigned long>((group.end_row - group.first_row) * ld) * sizeof *rows);
    return Engine::columns(copy, count, ld, columns);
  }
};

// The candidate group of tile row r (row `row` of q, query head `head`): its part of dq_row, and of dk and dv.
template <class Engine, class T>
void add_group(const Share& share, const ScoreMap& map, Interval group, i64 r, i64 row, i64 head, KeyRow<T>& keys,
               KeyRow<T>& values, float* dq_row, BackwardScratch<Engine>& s) {
  const Problem& p = share.params.problem;
  const BackwardTensors& t = share.tensors;
  const i64 ld_q = padded(p.head_dim), ld_v = padded(p.head_dim_v), batch = share.sequence.q_batch;
  const float* q = float_row(row_pointer<const T>(t.q, batch, row, head), last_stride(t.q), p.head_dim, s.query_row);
  const float* dout =
      float_row(row_pointer<const T>(t.dout, batch, row, head), last_stride(t.dout), p.head_dim_v, s.dout_row);
  group = intersect(group, share.keys);
  for (i32 j = group.begin; j < group.end; ++j) {
    const float* k = keys.at(j);
    Vec derivative;
    const Vec score = hn::Set(kFloat, dot(q, k, p.head_dim));
    const float probability = hn::GetLane(map.probability(score, hn::Set(kFloat, s.lse[r]), derivative));
    const float ds = probability * (dot(dout, values.at(j), p.head_dim_v) - s.delta[r]) * hn::GetLane(derivative);
    if (share.dq) blend(dq_row, 1.0f, k, ds, p.head_dim);
    if (share.dk) blend(s.dk + (j - share.keys.begin) * ld_q, 1.0f, q, ds, p.head_dim);
    if (share.dv) blend(s.dv + (j - share.keys.begin) * ld_v, 1.0f, dout, probability, p.head_dim_v);
  }
}

template <class Engine, class T>
void query_tile_gradients(const Share& share, i64 index, BackwardScratch<Engine>& s) {
  constexpr i64 kPanel = Engine::kPanel;
  const Problem& p = share.params.problem;
  const Sequence& sequence = share.sequence;
  const QueryTile tile = query_tile(p, sequence, share.head_kv, index);
  const Interval positions = positions_of(sequence, tile);
  const i64 rows = tile.positions * tile.heads, ld_q = padded(p.head_dim);
  const bool candidates = !intersect(candidate_keys(sequence.mask, positions), share.keys).empty();
  const bool group_tiles = candidates && sequence.mask.candidate_group_size >= kGroupTile;
  BackwardTile<Engine, T> work{share, p, rows, ScoreMap(p), s, {}, {}, {}};

  bool read = false, first = true;
  const auto read_once = [&] {
    if (!read) read_tile<Engine, T>(share, tile, positions, s);
    read = true;
  };
  KvWalk walk(sequence.mask, positions, kTileN);
  for (KvTile keys; walk.next(keys);) {
    if (keys.keys.begin < share.keys.begin || keys.keys.begin >= share.keys.end) continue;
    read_once();
    work.shared(keys, first);
    first = false;
  }
  if (!candidates && !share.dq) return;
  read_once();
  if (first && share.dq)
    for (i64 k = 0; k < kTileRows * ld_q; ++k) s.dq_panels[k] = 0.0f;
  if (group_tiles) {
    s.masks.fill_groups(sequence.mask, tile, positions);
    for_each_group(sequence.mask, tile, positions, [&](const GroupRows& group) { work.group(group); });
  }
  KeyRow<T> key_row(share.tensors.k, sequence, share.head_kv, p.head_dim, s.key_row);
  KeyRow<T> value_row(share.tensors.v, sequence, share.head_kv, p.head_dim_v, s.value_row);
  for (i64 r = 0; r < rows; ++r) {
    const i64 row = sequence.q_row_begin + tile.first_row + r / tile.heads, head = tile.head + r % tile.heads;
    if (share.dq && r % kPanel == 0)
      transpose(s.dq_panels + r * ld_q, kPanel, p.head_dim, min_of<i64>(kPanel, rows - r), s.dq_rows, ld_q);
    float* dq_row = s.dq_rows + r % kPanel * ld_q;
    const i32 at = positions.begin + static_cast<i32>(r / tile.heads);
    if (!group_tiles && role_at(sequence.mask, at) == Role::candidate && s.lse[r] != kInfinity)
      add_group<Engine, T>(share, work.map, {group_begin(sequence.mask, at), group_end(sequence.mask, at)}, r, row, head,
                           key_row, value_row, dq_row, s);
    if (share.dq)
      write_row(dq_row, p.head_dim, static_cast<float>(p.scale),
                row_pointer<T>(share.tensors.dq, sequence.q_batch, row, head), last_stride(share.tensors.dq));
  }
}

template <class T>
void write_keys(const Tensor& t, const Sequence& sequence, Interval keys, i64 head, i64 dim, const float* sums,
                float factor) {
  for (i32 j = keys.begin; j < keys.end; ++j)
    write_row(sums + (j - keys.begin) * padded(dim), dim, factor,
              row_pointer<T>(t, sequence.kv_batch, sequence.kv_row_begin + j, head), last_stride(t));
}

// All query tiles of a KV head against share.keys; writes dk and dv of those keys.
template <class Engine, class T>
void key_gradients(const Share& share, BackwardScratch<Engine>& s) {
  const Problem& p = share.params.problem;
  const i64 keys = share.keys.size();
  for (i64 k = 0; k < keys * padded(p.head_dim); ++k) s.dk[k] = 0.0f;
  for (i64 k = 0; k < keys * padded(p.head_dim_v); ++k) s.dv[k] = 0.0f;
  for (i64 index = 0; index < num_query_tiles(p, share.sequence); ++index) query_tile_gradients<Engine, T>(share, index, s);
  if (share.dk)
    write_keys<T>(share.tensors.dk, share.sequence, share.keys, share.head_kv, p.head_dim, s.dk,
                  static_cast<float>(p.scale));
  if (share.dv) write_keys<T>(share.tensors.dv, share.sequence, share.keys, share.head_kv, p.head_dim_v, s.dv, 1.0f);
}

// Rows of the slots past those in use: zeros.
template <class T>
void clear_rows(const Tensor& t, i64 batch, i64 begin, i64 end) {
  if (!given(t)) return;
  const i64 heads = t.shape[t.rank - 2], dim = t.shape[t.rank - 1];
  for (i64 row = begin; row < end; ++row)
    for (i64 h = 0; h < heads; ++h)
      for (i64 d = 0; d < dim; ++d) row_pointer<T>(t, batch, row, h)[d * last_stride(t)] = from_float<T>(0.0f);
}

template <class T>
void clear_tail(const BackwardTensors& t, const Sequence& s) {
  clear_rows<T>(t.dq, s.q_batch, s.q_row_begin + s.seqlen_q, s.q_row_begin + s.slot_q);
  clear_rows<T>(t.dk, s.kv_batch, s.kv_row_begin + s.seqlen_kv, s.kv_row_begin + s.slot_kv);
  clear_rows<T>(t.dv, s.kv_batch, s.kv_row_begin + s.seqlen_kv, s.kv_row_begin + s.slot_kv);
}

struct Call {
  const Params& params;
  const BackwardTensors& tensors;
  bool one_pass;
  i64 chunks;       // of keys per KV head in two passes
  i64 key_items;    // work items that own keys
  i64 query_items;  // work items that own a query tile (two passes)
};

template <class T>
void backward_task(void* context, i64 item, int worker) {
  const Call& call = *static_cast<const Call*>(context);
  const Params& params = call.params;
  const BackwardTensors& t = call.tensors;
  const bool dk = given(t.dk), dv = given(t.dv), dq = given(t.dq);
  if (item >= call.key_items + call.query_items) {
    clear_tail<T>(t, params.sequences[item - call.key_items - call.query_items]);
    return;
  }
  using Engine = typename EngineFor<T>::type;
  [[maybe_unused]] const typename Engine::Session session;
  Arena arena(params.scratch + worker * params.scratch_stride);
  BackwardScratch<Engine> scratch(params.problem, params.max_seqlen_kv, arena);
  if (item >= call.key_items) {
    const TilePlace place = place_of(params, item - call.key_items);
    const Sequence& sequence = params.sequences[place.sequence];
    const Share share{params, t, sequence, place.head_kv, {0, sequence.seqlen_kv}, dq, false, false};
    query_tile_gradients<Engine, T>(share, place.index, scratch);
    return;
  }
  const i64 heads = params.problem.num_heads_kv, chunk = item % call.chunks, unit = item / call.chunks;
  const Sequence& sequence = params.sequences[unit / heads];
  Interval keys{0, sequence.seqlen_kv};
  if (!call.one_pass)
    keys = intersect(keys, {static_cast<i32>(chunk * kChunkKeys), static_cast<i32>((chunk + 1) * kChunkKeys)});
  if (keys.empty() && !call.one_pass) return;
  key_gradients<Engine, T>({params, t, sequence, unit % heads, keys, dq && call.one_pass, dk, dv}, scratch);
}

}  // namespace

i64 backward_scratch(const Problem& problem, i64 max_seqlen_kv) {
  Arena arena(nullptr);
  with_type(problem.dtype, [&]<class T>() { BackwardScratch<typename EngineFor<T>::type>(problem, max_seqlen_kv, arena); });
  return arena.used();
}

void backward(const Params& params, const BackwardTensors& tensors) {
  const i64 units = params.problem.batch * params.problem.num_heads_kv;
  const bool keys_wanted = given(tensors.dk) || given(tensors.dv);
  Call call{params, tensors, true, 1, units, 0};
  call.one_pass = keys_wanted && params.max_seqlen_kv <= kOnePassKeys &&
                  (units >= 2 * params.parallel.num_workers || params.parallel.num_workers == 1);
  if (!call.one_pass) {
    call.chunks = max_of<i64>(1, ceil_div(params.max_seqlen_kv, kChunkKeys));
    call.key_items = keys_wanted ? units * call.chunks : 0;
    call.query_items = given(tensors.dq) ? params.tile_begin[params.problem.batch] : 0;
  }
  with_type(params.problem.dtype, [&]<class T>() {
    params.parallel.run(params.parallel.pool, call.key_items + call.query_items + params.problem.batch, backward_task<T>,
                        &call);
  });
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
