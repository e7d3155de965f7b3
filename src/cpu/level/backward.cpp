// CPU backward. For a query tile (cpu/tiling.h) and each key tile of its walk, everything transposed as in the forward:
//
//   S^T = K Q^T,  dP^T = V dO^T
//   P^T = exp(S^T - lse),  dS^T = P^T (dP^T - D) softcap'          D = rowsum(dO∘O) - dlse
//   dQ^T += K^T dS^T,  dV += P^T dO,  dK += dS^T Q
//
// and for each row its own keys: large candidate groups as key tiles, small ones and short intervals key by key. dK and dV are
// summed in float32 in the worker's scratch.
//
// One pass: a work item is a sequence and KV head, all five products in it. Where there are too few of those for the
// workers, or a sequence is too long for the scratch, two passes: items that own a chunk of keys sum dK and dV, items that
// own a query tile sum dQ, at the price of two products done twice. Sums run in the same order either way, so the results
// are the same bits.
//
// dbias and dsink have work items of their own, which compute dS, or D, again: few calls want them.
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
  float* bias;                                                  // of the current key tile; for dbias, then its gradient
  QueryMask mask;

  BackwardScratch(const Problem& p, bool intervals, i64 max_seqlen_kv, Arena& arena)
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
        bias(arena.take<float>(p.bias ? kTileN * kTileRows : 0)),
        mask(intervals, max_seqlen_kv, arena) {}
};

// What a work item computes: gradients of `keys` (dk, dv) and / or of its query tiles (dq), or dbias alone.
struct Share {
  const Params& params;
  const BackwardTensors& tensors;
  const Sequence& sequence;
  i64 head_kv;
  Interval keys;  // the walk is cut to these
  bool dq, dk, dv, dbias;
};

// Reads Q, dO, lse and D of a tile. Rows that see nothing become zeros, so that a NaN in them reaches no product.
template <class Engine, class T>
void read_tile(const Share& share, const QueryTile& tile, BackwardScratch<Engine>& s) {
  const Problem& p = share.params.problem;
  const BackwardTensors& t = share.tensors;
  const Sequence& sequence = share.sequence;
  const i64 ld_q = padded(p.head_dim), ld_v = padded(p.head_dim_v), rows = tile.positions * tile.heads;
  read_query_rows<Engine, T>(t.q, sequence, tile, p.head_dim, s.q_rows);
  read_query_rows<Engine, T>(t.dout, sequence, tile, p.head_dim_v, s.dout_rows);
  for (i64 r = 0; r < kTileRows; ++r) s.lse[r] = kInfinity, s.delta[r] = 0.0f;
  for (i64 r = 0; r < rows; ++r) {
    const i64 row = sequence.q_row_begin + tile.first_row + r / tile.heads, head = tile.head + r % tile.heads;
    const float lse = *lse_pointer(t.lse, sequence.q_batch, head, row);
    if (lse == -kInfinity || s.mask.blind(r)) {
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
void score_gradients(const Share& share, const ScoreMap& map, const KvTile& tile, i64 row, i64 columns,
                     BackwardScratch<Engine>& s) {
  constexpr i64 kPanel = Engine::kPanel;
  // Engines that multiply whole blocks take in the lanes not in use, where an infinite key times 0 would make P a NaN.
  const bool partial = tile.tile_class == TileClass::partial || (Engine::kBlocks && columns < kPanel);
  const i32 count = tile.keys.size();
  const bool bias = share.params.problem.bias;
  auto* const dscore_panel = Engine::probabilities(s.dprobabilities, s.dscore_panel);
  for (int v = 0; v < V; ++v) {
    const i64 lane = row + v * kLanes;
    const Vec lse = hn::LoadU(kFloat, s.lse + lane), delta = hn::LoadU(kFloat, s.delta + lane);
    const auto dscore = [&](i32 j) {
      if (j >= count) return hn::Zero(kFloat);
      Vec derivative;
      float* const bias_at = s.bias + j * kTileRows + lane;
      const Vec norm = bias ? hn::Sub(lse, hn::LoadU(kFloat, bias_at)) : lse;
      Vec p = map.probability(hn::LoadU(kFloat, s.scores + j * kPanel + v * kLanes), norm, derivative);
      Vec ds = hn::Mul(p, hn::Sub(hn::LoadU(kFloat, s.dprobabilities + j * kPanel + v * kLanes), delta));
      // The bias joins after the soft cap.
      if (map.kind != SoftcapKind::none && !share.dbias) ds = hn::Mul(ds, derivative);
      if (partial) {
        const auto sees = s.mask.sees(lane, tile.keys.begin + j);
        p = hn::IfThenElseZero(sees, p);
        ds = hn::IfThenElseZero(sees, ds);
      }
      if (share.dbias) hn::StoreU(ds, kFloat, bias_at);
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
  QueryTile query;
  i64 rows;
  ScoreMap map;
  BackwardScratch<Engine>& s;
  KeySource<T> key_source{share.tensors.k, share.tensors.k, share.sequence, share.head_kv, p.head_dim};
  KeySource<T> value_source{share.tensors.v, share.tensors.v, share.sequence, share.head_kv, p.head_dim_v};
  typename Engine::Rows keys{}, values{}, keys_transposed{};

  void load(Interval tile) {
    keys = key_rows<Engine, T>(key_source, tile, s.key_copy);
    values = key_rows<Engine, T>(value_source, tile, s.value_copy);
    if (p.bias) read_bias(share.tensors.bias, share.sequence, query, tile, 1.0f, s.bias);
    if (share.dq) keys_transposed = Engine::keys_transposed(keys, tile.size(), p.head_dim, s.keys_transposed);
  }

  // P and dS of the panel that starts at tile row `row`.
  void scores(const KvTile& tile, i64 row, i64 columns) {
    const i64 count = tile.keys.size(), vectors = Engine::vectors(columns);
    Engine::multiply_rows(keys, count, p.head_dim, s.q_panels + row * padded(p.head_dim), s.scores, columns);
    Engine::multiply_rows(values, count, p.head_dim_v, s.dout_panels + row * padded(p.head_dim_v), s.dprobabilities,
                          columns);
    if (vectors == 3) score_gradients<Engine, 3>(share, map, tile, row, columns, s);
    if (vectors == 2) score_gradients<Engine, 2>(share, map, tile, row, columns, s);
    if (vectors == 1) score_gradients<Engine, 1>(share, map, tile, row, columns, s);
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
    if (share.dbias) add_bias(tile, 0, rows);
  }

  // Adds the tile's bias gradients of tile rows [first_row, end_row).
  void add_bias(const KvTile& tile, i64 first_row, i64 end_row) {
    const Tensor& t = share.tensors.dbias;
    const i64 stride = last_stride(t);
    for (i64 r = first_row; r < end_row; ++r) {
      float* const to = bias_row(t, share.sequence, query.first_row + r / query.heads, query.head + r % query.heads);
      for (i32 j = tile.keys.begin; j < tile.keys.end; ++j) to[j * stride] += s.bias[(j - tile.keys.begin) * kTileRows + r];
    }
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
      if (share.dbias) add_bias(tile, group.first_row, group.end_row);
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

// Keys that tile row r (row `row` of the sequence, query head `head`) takes one by one: their part of dq_row, of dk and dv,
// and of dbias.
template <class Engine, class T>
void add_own_keys(const Share& share, const ScoreMap& map, Interval own, i64 r, i64 row, i64 head, KeyRow<T>& keys,
                  KeyRow<T>& values, float* dq_row, BackwardScratch<Engine>& s) {
  const Problem& p = share.params.problem;
  const BackwardTensors& t = share.tensors;
  const Sequence& sequence = share.sequence;
  const i64 ld_q = padded(p.head_dim), ld_v = padded(p.head_dim_v), at = sequence.q_row_begin + row;
  const float* q =
      float_row(row_pointer<const T>(t.q, sequence.q_batch, at, head), last_stride(t.q), p.head_dim, s.query_row);
  const float* dout =
      float_row(row_pointer<const T>(t.dout, sequence.q_batch, at, head), last_stride(t.dout), p.head_dim_v, s.dout_row);
  own = intersect(own, share.keys);
  for (i32 j = own.begin; j < own.end; ++j) {
    const float* k = keys.at(j);
    Vec derivative;
    const Vec score = hn::Set(kFloat, dot(q, k, p.head_dim));
    float norm = s.lse[r];
    if (p.bias) norm -= bias_row(t.bias, sequence, row, head)[j * last_stride(t.bias)];
    const float probability = hn::GetLane(map.probability(score, hn::Set(kFloat, norm), derivative));
    const float before_cap = probability * (dot(dout, values.at(j), p.head_dim_v) - s.delta[r]);
    const float ds = before_cap * hn::GetLane(derivative);
    if (share.dq) blend(dq_row, 1.0f, k, ds, p.head_dim);
    if (share.dk) blend(s.dk + (j - share.keys.begin) * ld_q, 1.0f, q, ds, p.head_dim);
    if (share.dv) blend(s.dv + (j - share.keys.begin) * ld_v, 1.0f, dout, probability, p.head_dim_v);
    if (share.dbias) bias_row(t.dbias, sequence, row, head)[j * last_stride(t.dbias)] += before_cap;
  }
}

template <class Engine, class T>
void query_tile_gradients(const Share& share, i64 index, BackwardScratch<Engine>& s) {
  constexpr i64 kPanel = Engine::kPanel;
  const Problem& p = share.params.problem;
  const Sequence& sequence = share.sequence;
  const QueryTile tile = query_tile(p, sequence, share.head_kv, index);
  const i64 rows = tile.positions * tile.heads, ld_q = padded(p.head_dim);
  BackwardTile<Engine, T> work{share, p, tile, rows, ScoreMap(p), s};

  s.mask.start(sequence, tile, share.keys);
  bool read = false, first = true;
  const auto read_once = [&] {
    if (!read) read_tile<Engine, T>(share, tile, s);
    read = true;
  };
  for (KvTile keys; s.mask.next(keys); first = false) {
    read_once();
    work.shared(keys, first);
  }
  if (!s.mask.has_group_tiles() && s.mask.own_count() == 0 && !share.dq) return;
  read_once();
  if (first && share.dq)
    for (i64 k = 0; k < kTileRows * ld_q; ++k) s.dq_panels[k] = 0.0f;
  if (s.mask.has_group_tiles()) {
    s.mask.turn_to_groups();
    for_each_group(sequence.mask, tile, positions_of(sequence, tile), [&](const GroupRows& group) { work.group(group); });
  }
  KeyRow<T> key_row(work.key_source, s.key_row), value_row(work.value_source, s.value_row);
  for (i64 r = 0; r < rows; ++r) {
    const i64 row = tile.first_row + r / tile.heads, head = tile.head + r % tile.heads;
    if (share.dq && r % kPanel == 0)
      transpose(s.dq_panels + r * ld_q, kPanel, p.head_dim, min_of<i64>(kPanel, rows - r), s.dq_rows, ld_q);
    float* dq_row = s.dq_rows + r % kPanel * ld_q;
    for (int n = 0; s.lse[r] != kInfinity && n < s.mask.own_count(); ++n)
      if (!s.mask.own(r, n).empty())
        add_own_keys<Engine, T>(share, work.map, s.mask.own(r, n), r, row, head, key_row, value_row, dq_row, s);
    if (share.dq)
      write_row(dq_row, p.head_dim, static_cast<float>(p.scale),
                row_pointer<T>(share.tensors.dq, sequence.q_batch, sequence.q_row_begin + row, head),
                last_stride(share.tensors.dq));
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

// What the work items of dbias are: its entries [keys] of one batch entry (or sequence) and KV head, or of all of them where
// the tensor's axis is shared.
struct BiasUnits {
  bool rows_shared, heads_shared;  // axes of extent 1
  i64 batch, heads, chunks;        // extents of the items' index

  BiasUnits(const Params& params, const Tensor& dbias) {
    const Problem& p = params.problem;
    const int row_axis = dbias.rank - 2, head_axis = dbias.rank - 3;
    // Packed sequences own rows of their own, unless all rows are one.
    rows_shared = p.packed ? dbias.shape[row_axis] == 1 : dbias.shape[0] == 1;
    heads_shared = dbias.shape[head_axis] == 1;
    batch = rows_shared ? 1 : p.batch;
    heads = heads_shared ? 1 : p.num_heads_kv;
    chunks = ceil_div(dbias.shape[dbias.rank - 1], kChunkKeys);
  }
  i64 count() const { return batch * heads * chunks; }
};

// Zeros in columns `keys` of a unit's rows of dbias, those of query heads [first_head, end_head).
inline void zero_bias(const Params& params, const Tensor& dbias, const BiasUnits& units, i64 batch, Interval keys,
                      i64 first_head, i64 end_head) {
  const bool packed = params.problem.packed;
  const i64 batches = packed ? 1 : dbias.shape[0], rows = dbias.shape[dbias.rank - 2], stride = last_stride(dbias);
  const Sequence* const own = units.rows_shared ? nullptr : &params.sequences[batch];
  const i64 first_batch = packed || own == nullptr ? 0 : batch, end_batch = packed || own == nullptr ? batches : batch + 1;
  const i64 first_row = packed && own != nullptr ? own->q_row_begin : 0;
  const i64 end_row = packed && own != nullptr ? first_row + own->slot_q : rows;
  if (units.heads_shared) first_head = 0, end_head = 1;
  for (i64 b = first_batch; b < end_batch; ++b)
    for (i64 h = first_head; h < end_head; ++h)
      for (i64 i = first_row; i < end_row; ++i) {
        float* const row = static_cast<float*>(dbias.data) + bias_offset(dbias, b, i, h);
        for (i32 j = keys.begin; j < keys.end; ++j) row[j * stride] = 0.0f;
      }
}

template <class Engine, class T>
void bias_gradients(const Params& params, const BackwardTensors& t, const BiasUnits& units, i64 item,
                    BackwardScratch<Engine>& s) {
  const Problem& p = params.problem;
  const Tensor& dbias = t.dbias;
  const i64 chunk = item % units.chunks, head = item / units.chunks % units.heads,
            batch = item / units.chunks / units.heads;
  const i64 begin = chunk * kChunkKeys, end = min_of(begin + kChunkKeys, dbias.shape[dbias.rank - 1]);
  const i64 first_b = units.rows_shared ? 0 : batch, end_b = units.rows_shared ? p.batch : batch + 1;
  const i64 first_h = units.heads_shared ? 0 : head, end_h = units.heads_shared ? p.num_heads_kv : head + 1;
  const i64 group = group_size(p);
  zero_bias(params, dbias, units, batch, {static_cast<i32>(begin), static_cast<i32>(end)}, first_h * group, end_h * group);
  for (i64 b = first_b; b < end_b; ++b) {
    const Sequence& sequence = params.sequences[b];
    const Interval keys = intersect({static_cast<i32>(begin), static_cast<i32>(end)}, {0, sequence.seqlen_kv});
    if (keys.empty()) continue;
    for (i64 h = first_h; h < end_h; ++h)
      for (i64 index = 0; index < num_query_tiles(p, sequence); ++index)
        query_tile_gradients<Engine, T>({params, t, sequence, h, keys, false, false, false, true}, index, s);
  }
}

// dsink[head] = -sum of exp(sink - lse) D over all rows.
template <class Engine, class T>
void sink_gradient(const Params& params, const BackwardTensors& t, i64 head, BackwardScratch<Engine>& s) {
  const Problem& p = params.problem;
  const double sink = static_cast<const float*>(t.sink.data)[head * t.sink.strides[0]];
  double sum = 0.0;
  for (i64 b = 0; b < p.batch; ++b) {
    const Sequence& sequence = params.sequences[b];
    for (i64 first = 0; first < sequence.seqlen_q; first += kTileRows) {
      const QueryTile tile{first, min_of<i64>(kTileRows, sequence.seqlen_q - first), head, 1};
      s.mask.start(sequence, tile, {0, 0});
      for (i64 r = 0; r < tile.positions; ++r) {
        const i64 row = sequence.q_row_begin + first + r;
        const double lse = *lse_pointer(t.lse, sequence.q_batch, head, row);
        if (lse == -kInfinity) continue;
        double delta = 0.0;
        // The out of a row that sees nothing is 0, whatever its dout.
        if (!s.mask.blind(r)) {
          const float* out = float_row(row_pointer<const T>(t.out, sequence.q_batch, row, head), last_stride(t.out),
                                       p.head_dim_v, s.out_row);
          const float* dout = float_row(row_pointer<const T>(t.dout, sequence.q_batch, row, head), last_stride(t.dout),
                                        p.head_dim_v, s.dout_row);
          delta = dot(out, dout, p.head_dim_v);
        }
        if (given(t.dlse)) delta -= *lse_pointer(t.dlse, sequence.q_batch, head, row);
        sum -= exp(sink - lse) * delta;
      }
    }
  }
  static_cast<float*>(t.dsink.data)[head * t.dsink.strides[0]] = static_cast<float>(sum);
}

// The work items of a call, kind after kind.
struct Call {
  const Params& params;
  const BackwardTensors& tensors;
  bool one_pass;
  i64 chunks;       // of keys per KV head in two passes
  i64 key_items;    // own keys
  i64 query_items;  // own a query tile (two passes)
  i64 bias_items;   // own a part of dbias
  i64 sink_items;   // own a query head of dsink
  i64 count() const { return key_items + query_items + bias_items + sink_items + params.problem.batch; }
};

template <class T>
void backward_task(void* context, i64 item, int worker) {
  const Call& call = *static_cast<const Call*>(context);
  const Params& params = call.params;
  const BackwardTensors& t = call.tensors;
  const bool dk = given(t.dk), dv = given(t.dv), dq = given(t.dq);
  using Engine = typename EngineFor<T>::type;
  [[maybe_unused]] const typename Engine::Session session;
  Arena arena(params.scratch + worker * params.scratch_stride);
  BackwardScratch<Engine> scratch(params.problem, params.intervals, params.max_seqlen_kv, arena);
  if (item < call.key_items) {
    const i64 heads = params.problem.num_heads_kv, chunk = item % call.chunks, unit = item / call.chunks;
    const Sequence& sequence = params.sequences[unit / heads];
    Interval keys{0, sequence.seqlen_kv};
    if (!call.one_pass)
      keys = intersect(keys, {static_cast<i32>(chunk * kChunkKeys), static_cast<i32>((chunk + 1) * kChunkKeys)});
    if (keys.empty() && !call.one_pass) return;
    key_gradients<Engine, T>({params, t, sequence, unit % heads, keys, dq && call.one_pass, dk, dv, false}, scratch);
    return;
  }
  item -= call.key_items;
  if (item < call.query_items) {
    const TilePlace place = place_of(params, item);
    const Sequence& sequence = params.sequences[place.sequence];
    query_tile_gradients<Engine, T>({params, t, sequence, place.head_kv, {0, sequence.seqlen_kv}, dq, false, false, false},
                                    place.index, scratch);
    return;
  }
  item -= call.query_items;
  if (item < call.bias_items) return bias_gradients<Engine, T>(params, t, BiasUnits(params, t.dbias), item, scratch);
  item -= call.bias_items;
  if (item < call.sink_items) return sink_gradient<Engine, T>(params, t, item, scratch);
  clear_tail<T>(t, params.sequences[item - call.sink_items]);
}

}  // namespace

i64 backward_scratch(const Problem& problem, bool intervals, i64 max_seqlen_kv) {
  Arena arena(nullptr);
  with_type(problem.dtype,
            [&]<class T>() { BackwardScratch<typename EngineFor<T>::type>(problem, intervals, max_seqlen_kv, arena); });
  return arena.used();
}

void backward(const Params& params, const BackwardTensors& tensors) {
  const i64 units = params.problem.batch * params.problem.num_heads_kv;
  const bool keys_wanted = given(tensors.dk) || given(tensors.dv);
  Call call{params, tensors, true, 1, units, 0, 0, 0};
  call.one_pass = keys_wanted && params.max_seqlen_kv <= kOnePassKeys &&
                  (units >= 2 * params.parallel.num_workers || params.parallel.num_workers == 1);
  if (!call.one_pass) {
    call.chunks = max_of<i64>(1, ceil_div(params.max_seqlen_kv, kChunkKeys));
    call.key_items = keys_wanted ? units * call.chunks : 0;
    call.query_items = given(tensors.dq) ? params.tile_begin[params.problem.batch] : 0;
  }
  if (given(tensors.dbias)) call.bias_items = BiasUnits(params, tensors.dbias).count();
  if (given(tensors.dsink)) call.sink_items = params.problem.num_heads_q;
  with_type(params.problem.dtype,
            [&]<class T>() { params.parallel.run(params.parallel.pool, call.count(), backward_task<T>, &call); });
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
