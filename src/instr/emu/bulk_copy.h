// Bulk and tensor copies of the async proxy.
#pragma once

namespace iso::instr {

inline void cp_async_bulk_shared_global(u32 destination, const void* source, u32 bytes, u32 barrier,
                                        Location at = Location::here()) {
  emu::cp_async_bulk_load(destination, source, bytes, barrier, 0, at);
}
inline void cp_async_bulk_shared_global_multicast(u32 destination, const void* source, u32 bytes, u32 barrier, u16 cta_mask,
                                                  Location at = Location::here()) {
  emu::cp_async_bulk_load(destination, source, bytes, barrier, cta_mask, at);
}
inline void cp_async_bulk_shared_cluster_shared(u32 destination, u32 source, u32 bytes, u32 barrier,
                                                Location at = Location::here()) {
  emu::cp_async_bulk_to_peer(destination, source, bytes, barrier, at);
}
inline void cp_async_bulk_global_shared(void* destination, u32 source, u32 bytes, Location at = Location::here()) {
  emu::cp_async_bulk_store(destination, source, bytes, false, at);
}
inline void cp_reduce_async_bulk_global_shared_add_f32(float* destination, u32 source, u32 bytes,
                                                       Location at = Location::here()) {
  emu::cp_async_bulk_store(destination, source, bytes, true, at);
}
inline void cp_async_bulk_commit_group(Location at = Location::here()) {
  if (!emu::removed("cp.async.bulk.commit_group", at)) emu::cp_async_bulk_commit_group(at);
}
template <int kPending>
void cp_async_bulk_wait_group(Location at = Location::here()) {
  if (!emu::removed("cp.async.bulk.wait_group", at)) emu::cp_async_bulk_wait_group(kPending, false, at);
}
template <int kPending>
void cp_async_bulk_wait_group_read(Location at = Location::here()) {
  if (!emu::removed("cp.async.bulk.wait_group.read", at)) emu::cp_async_bulk_wait_group(kPending, true, at);
}

// Rank 1
inline void cp_async_bulk_tensor_1d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                  Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {1, {c0}}, 0, "cp.async.bulk.tensor.1d load", at);
}
inline void cp_async_bulk_tensor_1d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                            u16 cta_mask, Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {1, {c0}}, cta_mask, "cp.async.bulk.tensor.1d multicast",
                                 at);
}
inline void cp_async_bulk_tensor_1d_global_shared(const TensorMap* map, u32 source, i32 c0,
                                                  Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {1, {c0}}, false, "cp.async.bulk.tensor.1d store", at);
}
inline void cp_reduce_async_bulk_tensor_1d_global_shared_add(const TensorMap* map, u32 source, i32 c0,
                                                             Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {1, {c0}}, true, "cp.reduce.async.bulk.tensor.1d", at);
}
// Rank 2
inline void cp_async_bulk_tensor_2d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0, i32 c1,
                                                  Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {2, {c0, c1}}, 0, "cp.async.bulk.tensor.2d load", at);
}
inline void cp_async_bulk_tensor_2d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                            i32 c1, u16 cta_mask, Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {2, {c0, c1}}, cta_mask,
                                 "cp.async.bulk.tensor.2d multicast", at);
}
inline void cp_async_bulk_tensor_2d_global_shared(const TensorMap* map, u32 source, i32 c0, i32 c1,
                                                  Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {2, {c0, c1}}, false, "cp.async.bulk.tensor.2d store", at);
}
inline void cp_reduce_async_bulk_tensor_2d_global_shared_add(const TensorMap* map, u32 source, i32 c0, i32 c1,
                                                             Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {2, {c0, c1}}, true, "cp.reduce.async.bulk.tensor.2d", at);
}
// Rank 3
inline void cp_async_bulk_tensor_3d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0, i32 c1,
                                                  i32 c2, Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {3, {c0, c1, c2}}, 0, "cp.async.bulk.tensor.3d load", at);
}
inline void cp_async_bulk_tensor_3d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                            i32 c1, i32 c2, u16 cta_mask, Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {3, {c0, c1, c2}}, cta_mask,
                                 "cp.async.bulk.tensor.3d multicast", at);
}
inline void cp_async_bulk_tensor_3d_global_shared(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2,
                                                  Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {3, {c0, c1, c2}}, false, "cp.async.bulk.tensor.3d store", at);
}
inline void cp_reduce_async_bulk_tensor_3d_global_shared_add(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2,
                                                             Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {3, {c0, c1, c2}}, true, "cp.reduce.async.bulk.tensor.3d", at);
}
// Rank 4
inline void cp_async_bulk_tensor_4d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0, i32 c1,
                                                  i32 c2, i32 c3, Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {4, {c0, c1, c2, c3}}, 0, "cp.async.bulk.tensor.4d load",
                                 at);
}
inline void cp_async_bulk_tensor_4d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                            i32 c1, i32 c2, i32 c3, u16 cta_mask,
                                                            Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {4, {c0, c1, c2, c3}}, cta_mask,
                                 "cp.async.bulk.tensor.4d multicast", at);
}
inline void cp_async_bulk_tensor_4d_global_shared(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2, i32 c3,
                                                  Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {4, {c0, c1, c2, c3}}, false, "cp.async.bulk.tensor.4d store", at);
}
inline void cp_reduce_async_bulk_tensor_4d_global_shared_add(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2,
                                                             i32 c3, Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {4, {c0, c1, c2, c3}}, true, "cp.reduce.async.bulk.tensor.4d", at);
}
// Rank 5
inline void cp_async_bulk_tensor_5d_shared_global(u32 destination, const TensorMap* map, u32 barrier, i32 c0, i32 c1,
                                                  i32 c2, i32 c3, i32 c4, Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {5, {c0, c1, c2, c3, c4}}, 0,
                                 "cp.async.bulk.tensor.5d load", at);
}
inline void cp_async_bulk_tensor_5d_shared_global_multicast(u32 destination, const TensorMap* map, u32 barrier, i32 c0,
                                                            i32 c1, i32 c2, i32 c3, i32 c4, u16 cta_mask,
                                                            Location at = Location::here()) {
  emu::cp_async_bulk_tensor_load(destination, map->bits, barrier, {5, {c0, c1, c2, c3, c4}}, cta_mask,
                                 "cp.async.bulk.tensor.5d multicast", at);
}
inline void cp_async_bulk_tensor_5d_global_shared(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4,
                                                  Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {5, {c0, c1, c2, c3, c4}}, false, "cp.async.bulk.tensor.5d store", at);
}
inline void cp_reduce_async_bulk_tensor_5d_global_shared_add(const TensorMap* map, u32 source, i32 c0, i32 c1, i32 c2,
                                                             i32 c3, i32 c4, Location at = Location::here()) {
  emu::cp_async_bulk_tensor_store(map->bits, source, {5, {c0, c1, c2, c3, c4}}, true, "cp.reduce.async.bulk.tensor.5d", at);
}

inline void prefetch_tensormap(const TensorMap*, Location = Location::here()) {}

}  // namespace iso::instr
