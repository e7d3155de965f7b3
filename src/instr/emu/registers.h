// Special registers and addresses of shared memory.
#pragma once

namespace iso::instr {

inline u32 tid_x() { return emu::this_thread().tid; }
inline u32 ntid_x() { return emu::this_thread().cta->grid.config.threads; }
inline u32 laneid() { return emu::this_thread().lane(); }
inline u32 ctaid_x() { return emu::this_thread().cta->id.x; }
inline u32 ctaid_y() { return emu::this_thread().cta->id.y; }
inline u32 ctaid_z() { return emu::this_thread().cta->id.z; }
inline u32 nctaid_x() { return emu::this_thread().cta->grid.config.grid.x; }
inline u32 nctaid_y() { return emu::this_thread().cta->grid.config.grid.y; }
inline u32 nctaid_z() { return emu::this_thread().cta->grid.config.grid.z; }
inline u32 cluster_ctarank() { return emu::this_thread().cta->rank; }
inline u32 cluster_nctarank() { return emu::this_thread().cta->grid.config.cluster.count(); }

inline u32 smem_u32(const void* p, Location at = Location::here()) { return emu::smem_u32(p, at); }
template <class T>
T& shared_storage(Location at = Location::here()) {
  return *static_cast<T*>(emu::shared_storage(sizeof(T), at));
}

}  // namespace iso::instr
