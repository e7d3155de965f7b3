// Instructions of a whole warp; the member mask is always all 32 lanes.
#pragma once

namespace iso::instr {

inline u32 shfl_sync_idx_b32(u32 value, u32 lane, Location at = Location::here()) {
  return emu::shfl_sync(emu::Shuffle::idx, value, lane, at);
}
inline u32 shfl_sync_up_b32(u32 value, u32 delta, Location at = Location::here()) {
  return emu::shfl_sync(emu::Shuffle::up, value, delta, at);
}
inline u32 shfl_sync_down_b32(u32 value, u32 delta, Location at = Location::here()) {
  return emu::shfl_sync(emu::Shuffle::down, value, delta, at);
}
inline u32 shfl_sync_bfly_b32(u32 value, u32 lane_mask, Location at = Location::here()) {
  return emu::shfl_sync(emu::Shuffle::bfly, value, lane_mask, at);
}
inline float shfl_sync_idx_f32(float value, u32 lane, Location at = Location::here()) {
  return bits_float(emu::shfl_sync(emu::Shuffle::idx, float_bits(value), lane, at));
}
inline float shfl_sync_bfly_f32(float value, u32 lane_mask, Location at = Location::here()) {
  return bits_float(emu::shfl_sync(emu::Shuffle::bfly, float_bits(value), lane_mask, at));
}
inline u32 vote_sync_ballot(bool predicate, Location at = Location::here()) { return emu::vote_sync_ballot(predicate, at); }
inline bool elect_sync(Location at = Location::here()) { return emu::elect_sync(at); }
inline void bar_warp_sync(Location at = Location::here()) {
  if (!emu::removed("bar.warp.sync", at)) emu::bar_warp_sync(at);
}

}  // namespace iso::instr
