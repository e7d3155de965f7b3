// After a forward whose keys were cut into parts: out and lse of the whole, row by row, by the mathematics of core/merge.h.
// Parts that saw no key are not read, so what their out holds does not matter. Rows of a slot that are not in use become
// zeros with lse -inf.
//
// One CTA per RowBlock. Each lane holds 8 elements of kRowsInFlight rows and goes through the parts in order: bits do not
// depend on how rows are spread over threads. Bound by memory.
#pragma once

#include "core/merge.h"
#include "kernels/common/rows.h"

namespace iso {
inline namespace ISO_TARGET {
namespace split_combine {

template <class PartElement, class OutElement>
struct Config {
  using Part = PartElement;
  using Out = OutElement;
  using Params = SplitCombineParams;
  static constexpr i32 kThreads = 256, kSharedBytes = 0;
};

struct DeviceMath {
  using Real = float;
  static ISO_DEVICE float exp(float x) { return instr::ex2_approx_ftz_f32(x * static_cast<float>(kLog2E)); }
  static ISO_DEVICE float log(float x) { return instr::lg2_approx_ftz_f32(x) * static_cast<float>(kLn2); }
};

template <class Config>
ISO_DEVICE void run(const SplitCombineParams& p) {
  using Part = typename Config::Part;
  using Out = typename Config::Out;
  instr::griddepcontrol_wait();
  const RowLanes lanes = row_lanes(p.head_dim_v, Config::kThreads);
  const RowRange range = row_range(p.schedule);
  const i32 first = lanes.lane * kVector;
  if (first >= p.head_dim_v) return;

  for (i32 begin = 0; begin < range.count; begin += kRowsInFlight * lanes.groups) {
    Row rows[kRowsInFlight];
    Vector<float> sum[kRowsInFlight];
#pragma unroll
    for (i32 k = 0; k < kRowsInFlight; ++k) {
      rows[k] = row_at(range, begin + k * lanes.groups + lanes.group);
      sum[k] = Vector<float>{};
    }
    const auto part_lse = [&](const Row& row, i32 n) {
      if (!row.in_use) return kLseOfNoKey;
      return instr::ld_global_f32(p.part_lse.data + n * p.stride_part_lse + lse_offset(p.part_lse, range.sequence, row));
    };
    const auto merge = [&](const Row& row) {
      return MergedRow<DeviceMath>(p.num_parts, [&](i32 n) { return part_lse(row, n); });
    };
    static_assert(kRowsInFlight == 2);
    const MergedRow<DeviceMath> merged[] = {merge(rows[0]), merge(rows[1])};

    for (i32 n = 0; n < p.num_parts; ++n) {
      Vector<Part> part[kRowsInFlight];
      float weight[kRowsInFlight];
#pragma unroll
      for (i32 k = 0; k < kRowsInFlight; ++k) {
        part[k] = Vector<Part>{};
        weight[k] = 0.0f;
        const float lse = part_lse(rows[k], n);
        if (lse == kLseOfNoKey) continue;
        weight[k] = merged[k].weight(lse);
        const i64 offset = n * p.stride_part_out + element_offset(p.part_out, range.sequence, rows[k]);
        part[k] = load_vector<Part>(p.part_out, offset, first);
      }
#pragma unroll
      for (i32 k = 0; k < kRowsInFlight; ++k)
#pragma unroll
        for (i32 i = 0; i < kVector; ++i) sum[k].x[i] += weight[k] * widen(part[k].x[i]);
    }
#pragma unroll
    for (i32 k = 0; k < kRowsInFlight; ++k) {
      if (!rows[k].in_slot) continue;
      store_vector<Out>(p.out, element_offset(p.out, range.sequence, rows[k]), first, sum[k]);
      if (lanes.lane == 0 && p.lse.data != nullptr)
        instr::st_global_f32(p.lse.data + lse_offset(p.lse, range.sequence, rows[k]), merged[k].lse());
    }
  }
}

}  // namespace split_combine
}  // namespace ISO_TARGET
}  // namespace iso
