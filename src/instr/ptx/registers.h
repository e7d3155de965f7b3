// Special registers and addresses of shared memory. PTX manual: "Special Registers", "cvta".
#pragma once

namespace iso::instr {

ISO_DEVICE u32 tid_x() { return threadIdx.x; }
ISO_DEVICE u32 ntid_x() { return blockDim.x; }
ISO_DEVICE u32 laneid() {
  u32 lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
ISO_DEVICE u32 ctaid_x() { return blockIdx.x; }
ISO_DEVICE u32 ctaid_y() { return blockIdx.y; }
ISO_DEVICE u32 ctaid_z() { return blockIdx.z; }
ISO_DEVICE u32 nctaid_x() { return gridDim.x; }
ISO_DEVICE u32 nctaid_y() { return gridDim.y; }
ISO_DEVICE u32 nctaid_z() { return gridDim.z; }
ISO_DEVICE u32 cluster_ctarank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
ISO_DEVICE u32 cluster_nctarank() {
  u32 count;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return count;
}

ISO_DEVICE u32 smem_u32(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// The CTA's dynamic shared memory as the kernel's struct.
template <class T>
ISO_DEVICE T& shared_storage() {
  extern __shared__ __align__(1024) u8 iso_dynamic_shared_memory[];
  return *reinterpret_cast<T*>(iso_dynamic_shared_memory);
}

}  // namespace iso::instr
