// Fences. PTX manual: "membar, fence", "fence.proxy".
#pragma once

namespace iso::instr {

ISO_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
ISO_DEVICE void fence_proxy_async_shared_cta() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
ISO_DEVICE void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
ISO_DEVICE void fence_mbarrier_init_release_cluster() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
ISO_DEVICE void fence_acq_rel_cta() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
ISO_DEVICE void fence_acq_rel_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }
ISO_DEVICE void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

}  // namespace iso::instr
