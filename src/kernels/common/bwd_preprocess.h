// Before the backward: the numbers that it needs per query row, in tile order (kernels/params.h).
//
//   stats[tile][0][row] = lse * log2(e)        stats[tile][1][row] = D = rowsum(dO∘O) - dlse
//   dq_accum[tile][row][:] = 0                 if asked for
//
// A row that saw no key (lse = -inf) and rows of a tile that stand for no query get lse * log2(e) = +inf and D = 0, so that
// P = exp2(scale * log2(e) * S - stats) is 0 for them: with packed sequences they hold rows of the next sequence.
//
// One CTA per RowBlock. The lanes of a row load 16 bytes each of O and dO, multiply, and add up by shuffles; lane 0 writes.
// Bound by memory: O and dO are read once, 16 bytes a lane, kRowsInFlight rows a thread.
#pragma once

#include "core/merge.h"
#include "kernels/common/rows.h"

namespace iso {
inline namespace ISO_TARGET {
namespace bwd_preprocess {

template <class Element>
struct Config {
  using T = Element;
  using Params = BwdPreprocessParams;
  static constexpr i32 kThreads = 256, kSharedBytes = 0;
};

// The numbers of row `row` of a tile and its place in dq_accum, by the lanes of one row.
template <class Config>
ISO_DEVICE void write_row(const BwdPreprocessParams& p, const RowLanes& lanes, i64 tile, i32 row, float lse_log2,
                          float delta) {
  if (lanes.lane == 0) {
    float* stats = p.stats + tile * 2 * p.order.tile_rows + row;
    instr::st_global_f32(stats, lse_log2);
    instr::st_global_f32(stats + p.order.tile_rows, delta);
  }
  if (p.dq_accum == nullptr) return;
  float* accum = p.dq_accum + (tile * p.order.tile_rows + row) * p.head_dim;
  for (i32 d = lanes.lane * 4; d < p.head_dim; d += lanes.lanes * 4) instr::st_global_v4_b32(accum + d, {});
}

template <class Config>
ISO_DEVICE void run(const BwdPreprocessParams& p) {
  using T = typename Config::T;
  instr::griddepcontrol_wait();
  const RowLanes lanes = row_lanes(p.head_dim_v, Config::kThreads);
  const RowRange range = row_range(p.schedule);
  const i32 first = lanes.lane * kVector;

  for (i32 begin = 0; begin < range.count; begin += kRowsInFlight * lanes.groups) {
    Row rows[kRowsInFlight];
    Vector<T> out[kRowsInFlight], dout[kRowsInFlight];
    float lse[kRowsInFlight], dlse[kRowsInFlight];
#pragma unroll
    for (i32 k = 0; k < kRowsInFlight; ++k) {
      rows[k] = row_at(range, begin + k * lanes.groups + lanes.group);
      out[k] = dout[k] = Vector<T>{};
      lse[k] = kLseOfNoKey;
      dlse[k] = 0.0f;
      if (!rows[k].in_use) continue;
      if (first < p.head_dim_v) {
        out[k] = load_vector<T>(p.out, element_offset(p.out, range.sequence, rows[k]), first);
        dout[k] = load_vector<T>(p.dout, element_offset(p.dout, range.sequence, rows[k]), first);
      }
      lse[k] = instr::ld_global_f32(p.lse.data + lse_offset(p.lse, range.sequence, rows[k]));
      if (p.dlse.data != nullptr) dlse[k] = instr::ld_global_f32(p.dlse.data + lse_offset(p.dlse, range.sequence, rows[k]));
    }
#pragma unroll
    for (i32 k = 0; k < kRowsInFlight; ++k) {
      float delta = 0.0f;
#pragma unroll
      for (i32 i = 0; i < kVector; ++i) delta += widen(out[k].x[i]) * widen(dout[k].x[i]);
      delta = sum_over_lanes(delta, lanes.lanes) - dlse[k];
      const TileRow at = tile_row(p.order, range.sequence, rows[k]);
      if (!at.exists) continue;
      const bool blind = lse[k] == kLseOfNoKey;
      write_row<Config>(p, lanes, at.tile, at.row, blind ? -kLseOfNoKey : lse[k] * static_cast<float>(kLog2E),
                        blind ? 0.0f : delta);
      if (at.last)
        for (i32 row = at.row + 1; row < p.order.tile_rows; ++row)
          write_row<Config>(p, lanes, at.tile, row, -kLseOfNoKey, 0.0f);
    }
  }
}

}  // namespace bwd_preprocess
}  // namespace ISO_TARGET
}  // namespace iso
