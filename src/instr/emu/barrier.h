// Named barriers of a CTA, the barrier of a cluster.
#pragma once

namespace iso::instr {

inline void bar_sync(u32 barrier, u32 threads, Location at = Location::here()) {
  if (!emu::removed("bar.sync", at)) emu::bar_sync(barrier, threads, at);
}
inline void bar_arrive(u32 barrier, u32 threads, Location at = Location::here()) {
  if (!emu::removed("bar.arrive", at)) emu::bar_arrive(barrier, threads, at);
}
inline void barrier_cluster_arrive(Location at = Location::here()) {
  if (!emu::removed("barrier.cluster.arrive", at)) emu::barrier_cluster_arrive(true, at);
}
inline void barrier_cluster_arrive_relaxed(Location at = Location::here()) {
  if (!emu::removed("barrier.cluster.arrive.relaxed", at)) emu::barrier_cluster_arrive(false, at);
}
inline void barrier_cluster_wait(Location at = Location::here()) {
  if (!emu::removed("barrier.cluster.wait", at)) emu::barrier_cluster_wait(at);
}

}  // namespace iso::instr
