// After the backward: dQ = scale * accumulator, from float32 in tile order (kernels/params.h) to rows of the tensor. Rows
// of a slot that are not in use become zeros.
//
// One CTA per RowBlock. Each lane reads 32 bytes and writes 16. Bound by memory.
#pragma once

#include "kernels/common/rows.h"

namespace iso {
inline namespace ISO_TARGET {
namespace dq_convert {

template <class Element>
struct Config {
  using T = Element;
  using Params = DqConvertParams;
  static constexpr i32 kThreads = 256, kSharedBytes = 0;
};

template <class Config>
ISO_DEVICE void run(const DqConvertParams& p) {
  using T = typename Config::T;
  instr::griddepcontrol_wait();
  const RowLanes lanes = row_lanes(p.head_dim, Config::kThreads);
  const RowRange range = row_range(p.schedule);
  const i32 first = lanes.lane * kVector;
  if (first >= p.head_dim) return;

  for (i32 begin = 0; begin < range.count; begin += kRowsInFlight * lanes.groups) {
    Row rows[kRowsInFlight];
    Vector<float> accum[kRowsInFlight];
#pragma unroll
    for (i32 k = 0; k < kRowsInFlight; ++k) {
      rows[k] = row_at(range, begin + k * lanes.groups + lanes.group);
      accum[k] = Vector<float>{};
      if (!rows[k].in_use) continue;
      const TileRow at = tile_row(p.order, range.sequence, rows[k]);
      accum[k] = load_aligned(p.dq_accum + (at.tile * p.order.tile_rows + at.row) * p.head_dim + first);
    }
#pragma unroll
    for (i32 k = 0; k < kRowsInFlight; ++k) {
      if (!rows[k].in_slot) continue;
#pragma unroll
      for (i32 i = 0; i < kVector; ++i) accum[k].x[i] *= p.scale;
      store_vector<T>(p.dq, element_offset(p.dq, range.sequence, rows[k]), first, accum[k]);
    }
  }
}

}  // namespace dq_convert
}  // namespace ISO_TARGET
}  // namespace iso
