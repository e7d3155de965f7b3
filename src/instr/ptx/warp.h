// Instructions of a whole warp; the member mask is always all 32 lanes.
#pragma once

namespace iso::instr {

// PTX manual: "shfl.sync"
ISO_DEVICE u32 shfl_sync_idx_b32(u32 value, u32 lane) { return __shfl_sync(0xffffffffu, value, static_cast<int>(lane)); }
ISO_DEVICE u32 shfl_sync_up_b32(u32 value, u32 delta) { return __shfl_up_sync(0xffffffffu, value, delta); }
ISO_DEVICE u32 shfl_sync_down_b32(u32 value, u32 delta) { return __shfl_down_sync(0xffffffffu, value, delta); }
ISO_DEVICE u32 shfl_sync_bfly_b32(u32 value, u32 lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, static_cast<int>(lane_mask));
}
ISO_DEVICE float shfl_sync_idx_f32(float value, u32 lane) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(lane));
}
ISO_DEVICE float shfl_sync_bfly_f32(float value, u32 lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, static_cast<int>(lane_mask));
}

// PTX manual: "vote.sync"
ISO_DEVICE u32 vote_sync_ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

// PTX manual: "elect.sync"
ISO_DEVICE bool elect_sync() {
  u32 elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}

// PTX manual: "bar.warp.sync"
ISO_DEVICE void bar_warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

}  // namespace iso::instr
