// cp.async: copies of a thread by the generic proxy. Bytes of the destination beyond source_bytes are filled with zeros.
#pragma once

namespace iso::instr {

template <int kBytes>
void cp_async_ca_shared_global(u32 destination, const void* source, u32 source_bytes, Location at = Location::here()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emu::cp_async(destination, source, kBytes, source_bytes, "cp.async.ca", at);
}
inline void cp_async_cg_shared_global(u32 destination, const void* source, u32 source_bytes,
                                      Location at = Location::here()) {
  emu::cp_async(destination, source, 16, source_bytes, "cp.async.cg", at);
}
inline void cp_async_commit_group(Location at = Location::here()) {
  if (!emu::removed("cp.async.commit_group", at)) emu::cp_async_commit_group(at);
}
template <int kPending>
void cp_async_wait_group(Location at = Location::here()) {
  if (!emu::removed("cp.async.wait_group", at)) emu::cp_async_wait_group(kPending, at);
}
inline void cp_async_wait_all(Location at = Location::here()) {
  if (!emu::removed("cp.async.wait_all", at)) emu::cp_async_wait_all(at);
}
inline void cp_async_mbarrier_arrive_noinc(u32 barrier, Location at = Location::here()) {
  if (!emu::removed("cp.async.mbarrier.arrive.noinc", at)) emu::cp_async_mbarrier_arrive_noinc(barrier, at);
}

}  // namespace iso::instr
