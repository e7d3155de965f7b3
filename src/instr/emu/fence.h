// Fences.
#pragma once

namespace iso::instr {

inline void fence_proxy_async(Location at = Location::here()) {
  if (!emu::removed("fence.proxy.async", at)) emu::fence_proxy_async(emu::FenceSpace::all, at);
}
inline void fence_proxy_async_shared_cta(Location at = Location::here()) {
  if (!emu::removed("fence.proxy.async", at)) emu::fence_proxy_async(emu::FenceSpace::shared, at);
}
inline void fence_proxy_async_global(Location at = Location::here()) {
  if (!emu::removed("fence.proxy.async", at)) emu::fence_proxy_async(emu::FenceSpace::global, at);
}
inline void fence_mbarrier_init_release_cluster(Location at = Location::here()) {
  if (!emu::removed("fence.mbarrier_init", at)) emu::fence_mbarrier_init(at);
}
// The emulator knows one scope: what orders threads of the grid orders those of the CTA and the cluster.
inline void fence_acq_rel_cta(Location at = Location::here()) {
  if (!emu::removed("fence.acq_rel", at)) emu::fence_acq_rel(at);
}
inline void fence_acq_rel_cluster(Location at = Location::here()) {
  if (!emu::removed("fence.acq_rel", at)) emu::fence_acq_rel(at);
}
inline void fence_acq_rel_gpu(Location at = Location::here()) {
  if (!emu::removed("fence.acq_rel", at)) emu::fence_acq_rel(at);
}

}  // namespace iso::instr
