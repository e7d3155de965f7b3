// mbarrier objects, by their shared-memory address. PTX manual: "mbarrier.init" and the sections after it.
#pragma once

namespace iso::instr {

ISO_DEVICE void mbarrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
ISO_DEVICE void mbarrier_inval(u32 barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
ISO_DEVICE void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
ISO_DEVICE void mbarrier_arrive_count(u32 barrier, u32 count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
ISO_DEVICE void mbarrier_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
ISO_DEVICE void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
ISO_DEVICE void mbarrier_arrive_cluster(u32 barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
ISO_DEVICE void mbarrier_arrive_expect_tx_cluster(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
ISO_DEVICE bool mbarrier_test_wait_parity(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
ISO_DEVICE bool mbarrier_try_wait_parity(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
// try_wait gives up after a time of the chip's choosing.
ISO_DEVICE void mbarrier_wait_parity(u32 barrier, u32 parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {}
}

}  // namespace iso::instr
