// Named barriers of a CTA, the barrier of a cluster.
#pragma once

namespace iso::instr {

// PTX manual: "bar, barrier"
ISO_DEVICE void bar_sync(u32 barrier, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
ISO_DEVICE void bar_arrive(u32 barrier, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// PTX manual: "barrier.cluster"
ISO_DEVICE void barrier_cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
ISO_DEVICE void barrier_cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
ISO_DEVICE void barrier_cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

}  // namespace iso::instr
