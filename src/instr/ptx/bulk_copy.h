// Bulk and tensor copies of the async proxy. PTX manual: "cp.async.bulk" and the sections after it.
#pragma once

#include "instr/ptx/memory.h"

namespace iso::instr {

ISO_DEVICE void cp_async_bulk_shared_global(u32 destination, const void* source, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
               "l"(global_address(source)), "r"(bytes), "r"(barrier)
               : "memory");
}
ISO_DEVICE void cp_async_bulk_shared_global_multicast(u32 destination, const void* source, u32 bytes, u32 barrier,
                                                      u16 cta_mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::
          "r"(destination),
      "l"(global_address(source)), "r"(bytes), "r"(barrier), "h"(cta_mask)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_shared_cluster_shared(u32 destination, u32 source, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
      "r"(source), "r"(bytes), "r"(barrier)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_global_shared(void* destination, u32 source, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global_address(destination)),
               "r"(source), "r"(bytes)
               : "memory");
}
ISO_DEVICE void cp_reduce_async_bulk_global_shared_add_f32(float* destination, u32 source, u32 bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global_address(destination)),
      "r"(source), "r"(bytes)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending>
ISO_DEVICE void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}
template <int kPending>
ISO_DEVICE void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Rank 1
ISO_DEVICE void cp_async_bulk_tensor_1d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];" ::"r"(
          destination),
      "l"(map), "r"(barrier), "r"(c0)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_1d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                                u16 cta_mask) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4}], [%2], %3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(cta_mask), "r"(c0)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_1d_global_shared(const TensorMap* map, u32 source, i32 c0) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map), "r"(source),
               "r"(c0)
               : "memory");
}
ISO_DEVICE void cp_reduce_async_bulk_tensor_1d_global_shared_add(const TensorMap* map, u32 source, i32 c0) {
  asm volatile("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map),
               "r"(source), "r"(c0)
               : "memory");
}
// Rank 2
ISO_DEVICE void cp_async_bulk_tensor_2d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0, i32 c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_2d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                                i32 c1, u16 cta_mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(cta_mask), "r"(c0), "r"(c1)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_2d_global_shared(const TensorMap* map, u32 source, i32 c0, i32 c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(source),
               "r"(c0), "r"(c1)
               : "memory");
}
ISO_DEVICE void cp_reduce_async_bulk_tensor_2d_global_shared_add(const TensorMap* map, u32 source, i32 c0, i32 c1) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(source), "r"(c0), "r"(c1)
               : "memory");
}
// Rank 3
ISO_DEVICE void cp_async_bulk_tensor_3d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0, i32 c1,
                                                      i32 c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_3d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                                i32 c1, i32 c2, u16 cta_mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(cta_mask), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_3d_global_shared(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
ISO_DEVICE void cp_reduce_async_bulk_tensor_3d_global_shared_add(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2) {
  asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
// Rank 4
ISO_DEVICE void cp_async_bulk_tensor_4d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0, i32 c1,
                                                      i32 c2, i32 c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_4d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                                i32 c1, i32 c2, i32 c3, u16 cta_mask) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(cta_mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_4d_global_shared(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2, i32 c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
ISO_DEVICE void cp_reduce_async_bulk_tensor_4d_global_shared_add(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2,
                                                                 i32 c3) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
// Rank 5
ISO_DEVICE void cp_async_bulk_tensor_5d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0, i32 c1,
                                                      i32 c2, i32 c3, i32 c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_5d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                                i32 c1, i32 c2, i32 c3, i32 c4, u16 cta_mask) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(cta_mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
ISO_DEVICE void cp_async_bulk_tensor_5d_global_shared(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2, i32 c3,
                                                      i32 c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}
ISO_DEVICE void cp_reduce_async_bulk_tensor_5d_global_shared_add(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2,
                                                                 i32 c3, i32 c4) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// PTX manual: "prefetch"
ISO_DEVICE void prefetch_tensormap(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

}  // namespace iso::instr
