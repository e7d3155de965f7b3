// Persistent CTAs take work items from a counter; each adds its item to the sum in the order of the items: the handing over
// in global memory that deterministic gradients use.
#pragma once

#include "ring.h"

namespace iso::test {

struct OrderedSumParams {
  const float* in;  // [num_items][32]
  float* sum;       // [32]
  u32* next_item;
  u32* turn;  // the item that may be added
  u32 num_items;
};

ISO_DEVICE void ordered_sum(const OrderedSumParams& params) {
  using namespace instr;
  const u32 lane = laneid();
  for (;;) {
    u32 item = 0;
    if (lane == 0) item = atom_relaxed_gpu_global_add_u32(params.next_item, 1);
    item = shfl_sync_idx_b32(item, 0);
    if (item >= params.num_items) return;
    const float value = ld_global_f32(params.in + item * 32 + lane);
    if (lane == 0)
      while (ld_acquire_gpu_global_u32(params.turn) != item) {}
    bar_warp_sync();
    st_global_f32(params.sum + lane, ld_global_f32(params.sum + lane) + value);
    bar_warp_sync();
    if (lane == 0) st_release_gpu_global_u32(params.turn, item + 1);
  }
}

}  // namespace iso::test
