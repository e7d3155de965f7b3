// cp.async: copies of a thread by the generic proxy. Bytes of the destination beyond source_bytes are filled with zeros.
// PTX manual: "cp.async" and the sections after it.
#pragma once

#include "instr/ptx/memory.h"

namespace iso::instr {

template <int kBytes>
ISO_DEVICE void cp_async_ca_shared_global(u32 destination, const void* source, u32 source_bytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  asm volatile("cp.async.ca.shared::cta.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(global_address(source)),
               "n"(kBytes), "r"(source_bytes)
               : "memory");
}
ISO_DEVICE void cp_async_cg_shared_global(u32 destination, const void* source, u32 source_bytes) {
  asm volatile("cp.async.cg.shared::cta.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(global_address(source)),
               "r"(source_bytes)
               : "memory");
}
ISO_DEVICE void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
ISO_DEVICE void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
ISO_DEVICE void cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
ISO_DEVICE void cp_async_mbarrier_arrive_noinc(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace iso::instr
