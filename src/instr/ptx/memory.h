// Loads, stores and atomics of shared, distributed and global memory. PTX manual: "ld", "st", "mapa", "ldmatrix",
// "stmatrix", "atom", "red".
#pragma once

namespace iso::instr {

// Addresses of global memory as the instructions take them.
ISO_DEVICE u64 global_address(const void* p) { return static_cast<u64>(__cvta_generic_to_global(p)); }

ISO_DEVICE u16 ld_shared_b16(u32 address) {
  u16 value;
  asm volatile("ld.shared::cta.b16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}
ISO_DEVICE u32 ld_shared_b32(u32 address) {
  u32 value;
  asm volatile("ld.shared::cta.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
ISO_DEVICE U32x2 ld_shared_v2_b32(u32 address) {
  U32x2 value;
  asm volatile("ld.shared::cta.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address) : "memory");
  return value;
}
ISO_DEVICE U32x4 ld_shared_v4_b32(u32 address) {
  U32x4 value;
  asm volatile("ld.shared::cta.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
ISO_DEVICE float ld_shared_f32(u32 address) {
  float value;
  asm volatile("ld.shared::cta.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
ISO_DEVICE void st_shared_b16(u32 address, u16 value) {
  asm volatile("st.shared::cta.b16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}
ISO_DEVICE void st_shared_b32(u32 address, u32 value) {
  asm volatile("st.shared::cta.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
ISO_DEVICE void st_shared_v2_b32(u32 address, U32x2 value) {
  asm volatile("st.shared::cta.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(value.x), "r"(value.y) : "memory");
}
ISO_DEVICE void st_shared_v4_b32(u32 address, U32x4 value) {
  asm volatile("st.shared::cta.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
ISO_DEVICE void st_shared_f32(u32 address, float value) {
  asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

ISO_DEVICE u32 mapa_shared_cluster(u32 address, u32 rank) {
  u32 mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
ISO_DEVICE u32 ld_shared_cluster_b32(u32 address) {
  u32 value;
  asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
ISO_DEVICE U32x4 ld_shared_cluster_v4_b32(u32 address) {
  U32x4 value;
  asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
ISO_DEVICE void st_shared_cluster_b32(u32 address, u32 value) {
  asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
ISO_DEVICE void st_shared_cluster_v4_b32(u32 address, U32x4 value) {
  asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

// 8x8 matrices of 16-bit elements, one, two or four of them.
ISO_DEVICE void ldmatrix_x1(u32 (&registers)[1], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared::cta.b16 {%0}, [%1];" : "=r"(registers[0]) : "r"(address) : "memory");
}
ISO_DEVICE void stmatrix_x1(u32 address, const u32 (&registers)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared::cta.b16 [%0], {%1};" ::"r"(address), "r"(registers[0]) : "memory");
}
ISO_DEVICE void ldmatrix_x1_trans(u32 (&registers)[1], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared::cta.b16 {%0}, [%1];"
               : "=r"(registers[0])
               : "r"(address)
               : "memory");
}
ISO_DEVICE void stmatrix_x1_trans(u32 address, const u32 (&registers)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared::cta.b16 [%0], {%1};" ::"r"(address), "r"(registers[0])
               : "memory");
}
ISO_DEVICE void ldmatrix_x2(u32 (&registers)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {%0, %1}, [%2];"
               : "=r"(registers[0]), "=r"(registers[1])
               : "r"(address)
               : "memory");
}
ISO_DEVICE void stmatrix_x2(u32 address, const u32 (&registers)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%0], {%1, %2};" ::"r"(address), "r"(registers[0]),
               "r"(registers[1])
               : "memory");
}
ISO_DEVICE void ldmatrix_x2_trans(u32 (&registers)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%0, %1}, [%2];"
               : "=r"(registers[0]), "=r"(registers[1])
               : "r"(address)
               : "memory");
}
ISO_DEVICE void stmatrix_x2_trans(u32 address, const u32 (&registers)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%0], {%1, %2};" ::"r"(address), "r"(registers[0]),
               "r"(registers[1])
               : "memory");
}
ISO_DEVICE void ldmatrix_x4(u32 (&registers)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address)
               : "memory");
}
ISO_DEVICE void stmatrix_x4(u32 address, const u32 (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(registers[0]),
               "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
               : "memory");
}
ISO_DEVICE void ldmatrix_x4_trans(u32 (&registers)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address)
               : "memory");
}
ISO_DEVICE void stmatrix_x4_trans(u32 address, const u32 (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
               : "memory");
}

ISO_DEVICE u16 ld_global_b16(const void* address) {
  u16 value;
  asm volatile("ld.global.b16 %0, [%1];" : "=h"(value) : "l"(global_address(address)) : "memory");
  return value;
}
ISO_DEVICE u32 ld_global_b32(const void* address) {
  u32 value;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(global_address(address)) : "memory");
  return value;
}
ISO_DEVICE U32x2 ld_global_v2_b32(const void* address) {
  U32x2 value;
  asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(global_address(address)) : "memory");
  return value;
}
ISO_DEVICE U32x4 ld_global_v4_b32(const void* address) {
  U32x4 value;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(global_address(address))
               : "memory");
  return value;
}
ISO_DEVICE float ld_global_f32(const float* address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(global_address(address)) : "memory");
  return value;
}
// Read-only for the whole grid: may come from a cache that nothing keeps coherent.
ISO_DEVICE u32 ld_global_nc_b32(const void* address) {
  u32 value;
  asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(value) : "l"(global_address(address)));
  return value;
}
ISO_DEVICE U32x4 ld_global_nc_v4_b32(const void* address) {
  U32x4 value;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(global_address(address)));
  return value;
}
ISO_DEVICE void st_global_b16(void* address, u16 value) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(global_address(address)), "h"(value) : "memory");
}
ISO_DEVICE void st_global_b32(void* address, u32 value) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(global_address(address)), "r"(value) : "memory");
}
ISO_DEVICE void st_global_v2_b32(void* address, U32x2 value) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(global_address(address)), "r"(value.x), "r"(value.y) : "memory");
}
ISO_DEVICE void st_global_v4_b32(void* address, U32x4 value) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global_address(address)), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
ISO_DEVICE void st_global_f32(float* address, float value) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(global_address(address)), "f"(value) : "memory");
}

// Atomics of 4 bytes at gpu scope.
ISO_DEVICE u32 ld_relaxed_gpu_global_u32(const u32* address) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global_address(address)) : "memory");
  return value;
}
ISO_DEVICE u32 ld_acquire_gpu_global_u32(const u32* address) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global_address(address)) : "memory");
  return value;
}
ISO_DEVICE void st_relaxed_gpu_global_u32(u32* address, u32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(global_address(address)), "r"(value) : "memory");
}
ISO_DEVICE void st_release_gpu_global_u32(u32* address, u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(global_address(address)), "r"(value) : "memory");
}
ISO_DEVICE u32 atom_relaxed_gpu_global_add_u32(u32* address, u32 value) {
  u32 old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(global_address(address)), "r"(value)
               : "memory");
  return old;
}
ISO_DEVICE u32 atom_acq_rel_gpu_global_add_u32(u32* address, u32 value) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(global_address(address)), "r"(value)
               : "memory");
  return old;
}
ISO_DEVICE u32 atom_acq_rel_gpu_global_cas_b32(u32* address, u32 compare, u32 value) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(global_address(address)), "r"(compare), "r"(value)
               : "memory");
  return old;
}
ISO_DEVICE float atom_relaxed_gpu_global_add_f32(float* address, float value) {
  float old;
  asm volatile("atom.relaxed.gpu.global.add.f32 %0, [%1], %2;"
               : "=f"(old)
               : "l"(global_address(address)), "f"(value)
               : "memory");
  return old;
}
ISO_DEVICE void red_release_gpu_global_add_u32(u32* address, u32 value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(global_address(address)), "r"(value) : "memory");
}
ISO_DEVICE void red_relaxed_gpu_global_add_f32(float* address, float value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(global_address(address)), "f"(value) : "memory");
}
ISO_DEVICE void red_relaxed_gpu_global_add_v4_f32(float* address, float x, float y, float z, float w) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global_address(address)), "f"(x), "f"(y),
               "f"(z), "f"(w)
               : "memory");
}

}  // namespace iso::instr
