// Loads, stores and atomics of shared, distributed and global memory.
#pragma once

namespace iso::instr {

inline u16 ld_shared_b16(u32 address, Location at = Location::here()) {
  u16 value;
  emu::load_shared(address, &value, sizeof value, "ld.shared", at);
  return value;
}
inline u32 ld_shared_b32(u32 address, Location at = Location::here()) {
  u32 value;
  emu::load_shared(address, &value, sizeof value, "ld.shared", at);
  return value;
}
inline U32x2 ld_shared_v2_b32(u32 address, Location at = Location::here()) {
  U32x2 value;
  emu::load_shared(address, &value, sizeof value, "ld.shared", at);
  return value;
}
inline U32x4 ld_shared_v4_b32(u32 address, Location at = Location::here()) {
  U32x4 value;
  emu::load_shared(address, &value, sizeof value, "ld.shared", at);
  return value;
}
inline float ld_shared_f32(u32 address, Location at = Location::here()) {
  float value;
  emu::load_shared(address, &value, sizeof value, "ld.shared", at);
  return value;
}
inline void st_shared_b16(u32 address, u16 value, Location at = Location::here()) {
  emu::store_shared(address, &value, sizeof value, "st.shared", at);
}
inline void st_shared_b32(u32 address, u32 value, Location at = Location::here()) {
  emu::store_shared(address, &value, sizeof value, "st.shared", at);
}
inline void st_shared_v2_b32(u32 address, U32x2 value, Location at = Location::here()) {
  emu::store_shared(address, &value, sizeof value, "st.shared", at);
}
inline void st_shared_v4_b32(u32 address, U32x4 value, Location at = Location::here()) {
  emu::store_shared(address, &value, sizeof value, "st.shared", at);
}
inline void st_shared_f32(u32 address, float value, Location at = Location::here()) {
  emu::store_shared(address, &value, sizeof value, "st.shared", at);
}

inline u32 mapa_shared_cluster(u32 address, u32 rank, Location at = Location::here()) {
  return emu::mapa(address, rank, at);
}
inline u32 ld_shared_cluster_b32(u32 address, Location at = Location::here()) {
  u32 value;
  emu::load_shared_cluster(address, &value, sizeof value, "ld.shared::cluster", at);
  return value;
}
inline U32x4 ld_shared_cluster_v4_b32(u32 address, Location at = Location::here()) {
  U32x4 value;
  emu::load_shared_cluster(address, &value, sizeof value, "ld.shared::cluster", at);
  return value;
}
inline void st_shared_cluster_b32(u32 address, u32 value, Location at = Location::here()) {
  emu::store_shared_cluster(address, &value, sizeof value, "st.shared::cluster", at);
}
inline void st_shared_cluster_v4_b32(u32 address, U32x4 value, Location at = Location::here()) {
  emu::store_shared_cluster(address, &value, sizeof value, "st.shared::cluster", at);
}

// 8x8 matrices of 16-bit elements, one, two or four of them.
inline void ldmatrix_x1(u32 (&registers)[1], u32 address, Location at = Location::here()) {
  emu::ldmatrix(address, registers, 1, false, at);
}
inline void stmatrix_x1(u32 address, const u32 (&registers)[1], Location at = Location::here()) {
  emu::stmatrix(address, registers, 1, false, at);
}
inline void ldmatrix_x1_trans(u32 (&registers)[1], u32 address, Location at = Location::here()) {
  emu::ldmatrix(address, registers, 1, true, at);
}
inline void stmatrix_x1_trans(u32 address, const u32 (&registers)[1], Location at = Location::here()) {
  emu::stmatrix(address, registers, 1, true, at);
}
inline void ldmatrix_x2(u32 (&registers)[2], u32 address, Location at = Location::here()) {
  emu::ldmatrix(address, registers, 2, false, at);
}
inline void stmatrix_x2(u32 address, const u32 (&registers)[2], Location at = Location::here()) {
  emu::stmatrix(address, registers, 2, false, at);
}
inline void ldmatrix_x2_trans(u32 (&registers)[2], u32 address, Location at = Location::here()) {
  emu::ldmatrix(address, registers, 2, true, at);
}
inline void stmatrix_x2_trans(u32 address, const u32 (&registers)[2], Location at = Location::here()) {
  emu::stmatrix(address, registers, 2, true, at);
}
inline void ldmatrix_x4(u32 (&registers)[4], u32 address, Location at = Location::here()) {
  emu::ldmatrix(address, registers, 4, false, at);
}
inline void stmatrix_x4(u32 address, const u32 (&registers)[4], Location at = Location::here()) {
  emu::stmatrix(address, registers, 4, false, at);
}
inline void ldmatrix_x4_trans(u32 (&registers)[4], u32 address, Location at = Location::here()) {
  emu::ldmatrix(address, registers, 4, true, at);
}
inline void stmatrix_x4_trans(u32 address, const u32 (&registers)[4], Location at = Location::here()) {
  emu::stmatrix(address, registers, 4, true, at);
}

inline u16 ld_global_b16(const void* address, Location at = Location::here()) {
  u16 value;
  emu::load_global(address, &value, sizeof value, "ld.global", at);
  return value;
}
inline u32 ld_global_b32(const void* address, Location at = Location::here()) {
  u32 value;
  emu::load_global(address, &value, sizeof value, "ld.global", at);
  return value;
}
inline U32x2 ld_global_v2_b32(const void* address, Location at = Location::here()) {
  U32x2 value;
  emu::load_global(address, &value, sizeof value, "ld.global", at);
  return value;
}
inline U32x4 ld_global_v4_b32(const void* address, Location at = Location::here()) {
  U32x4 value;
  emu::load_global(address, &value, sizeof value, "ld.global", at);
  return value;
}
inline float ld_global_f32(const float* address, Location at = Location::here()) {
  float value;
  emu::load_global(address, &value, sizeof value, "ld.global", at);
  return value;
}
inline u32 ld_global_nc_b32(const void* address, Location at = Location::here()) {
  u32 value;
  emu::load_global(address, &value, sizeof value, "ld.global.nc", at);
  return value;
}
inline U32x4 ld_global_nc_v4_b32(const void* address, Location at = Location::here()) {
  U32x4 value;
  emu::load_global(address, &value, sizeof value, "ld.global.nc", at);
  return value;
}
inline void st_global_b16(void* address, u16 value, Location at = Location::here()) {
  emu::store_global(address, &value, sizeof value, "st.global", at);
}
inline void st_global_b32(void* address, u32 value, Location at = Location::here()) {
  emu::store_global(address, &value, sizeof value, "st.global", at);
}
inline void st_global_v2_b32(void* address, U32x2 value, Location at = Location::here()) {
  emu::store_global(address, &value, sizeof value, "st.global", at);
}
inline void st_global_v4_b32(void* address, U32x4 value, Location at = Location::here()) {
  emu::store_global(address, &value, sizeof value, "st.global", at);
}
inline void st_global_f32(float* address, float value, Location at = Location::here()) {
  emu::store_global(address, &value, sizeof value, "st.global", at);
}

// Atomics of 4 bytes at gpu scope.
inline u32 ld_relaxed_gpu_global_u32(const u32* address, Location at = Location::here()) {
  return emu::atomic_load(address, emu::Order::relaxed, "ld.relaxed.gpu", at);
}
inline u32 ld_acquire_gpu_global_u32(const u32* address, Location at = Location::here()) {
  return emu::atomic_load(address, emu::Order::acquire, "ld.acquire.gpu", at);
}
inline void st_relaxed_gpu_global_u32(u32* address, u32 value, Location at = Location::here()) {
  emu::atomic_store(address, value, emu::Order::relaxed, "st.relaxed.gpu", at);
}
inline void st_release_gpu_global_u32(u32* address, u32 value, Location at = Location::here()) {
  emu::atomic_store(address, value, emu::Order::release, "st.release.gpu", at);
}

inline u32 add_u32(u32 old, u32 operand, u32) { return old + operand; }
inline u32 add_f32(u32 old, u32 operand, u32) { return float_bits(bits_float(old) + bits_float(operand)); }
inline u32 exchange_if_equal(u32 old, u32 operand, u32 compare) { return old == compare ? operand : old; }

inline u32 atom_relaxed_gpu_global_add_u32(u32* address, u32 value, Location at = Location::here()) {
  return emu::atomic_update(address, value, 0, &add_u32, emu::Order::relaxed, "atom.add", at);
}
inline u32 atom_acq_rel_gpu_global_add_u32(u32* address, u32 value, Location at = Location::here()) {
  return emu::atomic_update(address, value, 0, &add_u32, emu::Order::acq_rel, "atom.acq_rel.add", at);
}
inline u32 atom_acq_rel_gpu_global_cas_b32(u32* address, u32 compare, u32 value, Location at = Location::here()) {
  return emu::atomic_update(address, value, compare, &exchange_if_equal, emu::Order::acq_rel, "atom.acq_rel.cas", at);
}
inline float atom_relaxed_gpu_global_add_f32(float* address, float value, Location at = Location::here()) {
  return bits_float(emu::atomic_update(address, float_bits(value), 0, &add_f32, emu::Order::relaxed, "atom.add.f32", at));
}
inline void red_release_gpu_global_add_u32(u32* address, u32 value, Location at = Location::here()) {
  emu::atomic_update(address, value, 0, &add_u32, emu::Order::release, "red.release.add", at);
}
inline void red_relaxed_gpu_global_add_f32(float* address, float value, Location at = Location::here()) {
  emu::atomic_update(address, float_bits(value), 0, &add_f32, emu::Order::relaxed, "red.add.f32", at);
}
inline void red_relaxed_gpu_global_add_v4_f32(float* address, float x, float y, float z, float w,
                                              Location at = Location::here()) {
  const float values[4] = {x, y, z, w};
  emu::check_alignment(address, 16, "red.add.v4.f32", at);
  for (int i = 0; i < 4; i++)
    emu::atomic_update(address + i, float_bits(values[i]), 0, &add_f32, emu::Order::relaxed, "red.add.v4.f32", at);
}

}  // namespace iso::instr
