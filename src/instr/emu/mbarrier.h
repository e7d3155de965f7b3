// mbarrier objects, by their shared-memory address.
#pragma once

namespace iso::instr {

inline void mbarrier_init(u32 barrier, u32 count, Location at = Location::here()) {
  emu::mbarrier_init(barrier, count, at);
}
inline void mbarrier_inval(u32 barrier, Location at = Location::here()) { emu::mbarrier_inval(barrier, at); }
inline void mbarrier_arrive(u32 barrier, Location at = Location::here()) {
  if (!emu::removed("mbarrier.arrive", at)) emu::mbarrier_arrive(barrier, 1, "mbarrier.arrive", at);
}
inline void mbarrier_arrive_count(u32 barrier, u32 count, Location at = Location::here()) {
  if (!emu::removed("mbarrier.arrive", at)) emu::mbarrier_arrive(barrier, count, "mbarrier.arrive", at);
}
inline void mbarrier_expect_tx(u32 barrier, u32 bytes, Location at = Location::here()) {
  if (!emu::removed("mbarrier.expect_tx", at)) emu::mbarrier_expect_tx(barrier, bytes, at);
}
inline void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes, Location at = Location::here()) {
  if (!emu::removed("mbarrier.arrive.expect_tx", at)) emu::mbarrier_arrive_expect_tx(barrier, bytes, true, at);
}
inline void mbarrier_arrive_cluster(u32 barrier, Location at = Location::here()) {
  if (!emu::removed("mbarrier.arrive.shared::cluster", at)) emu::mbarrier_arrive_cluster(barrier, at);
}
inline void mbarrier_arrive_expect_tx_cluster(u32 barrier, u32 bytes, Location at = Location::here()) {
  if (!emu::removed("mbarrier.arrive.expect_tx", at)) emu::mbarrier_arrive_expect_tx(barrier, bytes, false, at);
}
inline bool mbarrier_test_wait_parity(u32 barrier, u32 parity, Location at = Location::here()) {
  return emu::removed("mbarrier.test_wait.parity", at) || emu::mbarrier_test_wait_parity(barrier, parity, at);
}
// May suspend the thread: here until the phase has completed, so that a wait that never ends is a deadlock.
inline bool mbarrier_try_wait_parity(u32 barrier, u32 parity, Location at = Location::here()) {
  if (!emu::removed("mbarrier.try_wait.parity", at)) emu::mbarrier_wait_parity(barrier, parity, at);
  return true;
}
inline void mbarrier_wait_parity(u32 barrier, u32 parity, Location at = Location::here()) {
  if (!emu::removed("mbarrier.try_wait.parity", at)) emu::mbarrier_wait_parity(barrier, parity, at);
}

}  // namespace iso::instr
