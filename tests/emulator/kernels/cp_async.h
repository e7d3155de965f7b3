// out[i] = sum over the tiles of in[tile][i], for tiles of 32 x 4 floats: a warp fills a ring by cp.async, another sums.
//
//   barrier    arrivals                                             waits      protects
//   full[s]    32, each when the lane's copies have landed          consumer   tile[s] until read
//   empty[s]   32 consumer lanes                                    producer   tile[s] while read
#pragma once

#include "ring.h"

namespace iso::test {

struct CpAsyncParams {
  const float* in;  // [num_tiles][128]
  float* out;       // [128]: from the ring, [128, 256): from a buffer that each lane fills for itself
  u32 num_tiles;
};

struct CpAsyncConfig {
  static constexpr u32 kNumStages = 3, kThreads = 64, kTile = 128;
};

template <class Config>
struct CpAsyncStorage {
  alignas(16) instr::SharedArray<float, Config::kTile> tile[Config::kNumStages];
  alignas(16) instr::SharedArray<float, Config::kTile> own[2];
  instr::SharedBarrier full[Config::kNumStages], empty[Config::kNumStages];
};

template <class Config>
ISO_DEVICE void cp_async_fill(const CpAsyncParams& params, CpAsyncStorage<Config>& smem) {
  using namespace instr;
  Ring ring;
  for (u32 tile = 0; tile < params.num_tiles; tile++, ring.advance(Config::kNumStages)) {
    mbarrier_wait_parity(smem_u32(&smem.empty[ring.stage]), ring.phase ^ 1);
    cp_async_cg_shared_global(smem_u32(&smem.tile[ring.stage]) + 16 * laneid(),
                              params.in + tile * Config::kTile + 4 * laneid(), 16);
    cp_async_mbarrier_arrive_noinc(smem_u32(&smem.full[ring.stage]));
  }
}

template <class Config>
ISO_DEVICE void cp_async_sum(const CpAsyncParams& params, CpAsyncStorage<Config>& smem) {
  using namespace instr;
  float sum[4] = {};
  Ring ring;
  for (u32 tile = 0; tile < params.num_tiles; tile++, ring.advance(Config::kNumStages)) {
    mbarrier_wait_parity(smem_u32(&smem.full[ring.stage]), ring.phase);
    for (u32 i = 0; i < 4; i++) sum[i] += ld_shared_f32(smem_u32(&smem.tile[ring.stage]) + 4 * (laneid() + 32 * i));
    mbarrier_arrive(smem_u32(&smem.empty[ring.stage]));
  }
  for (u32 i = 0; i < 4; i++) st_global_f32(params.out + laneid() + 32 * i, sum[i]);
}

// Double buffering by groups: each lane reads only what it has copied.
template <class Config>
ISO_DEVICE void cp_async_own(const CpAsyncParams& params, CpAsyncStorage<Config>& smem) {
  using namespace instr;
  const u32 lane = laneid();
  float sum[4] = {};
  for (u32 tile = 0; tile <= params.num_tiles; tile++) {
    if (tile < params.num_tiles)
      cp_async_ca_shared_global<16>(smem_u32(&smem.own[tile % 2]) + 16 * lane, params.in + tile * Config::kTile + 4 * lane,
                                    16);
    cp_async_commit_group();
    cp_async_wait_group<1>();
    if (tile == 0) continue;
    const U32x4 values = ld_shared_v4_b32(smem_u32(&smem.own[(tile - 1) % 2]) + 16 * lane);
    sum[0] += as_f32(values.x);
    sum[1] += as_f32(values.y);
    sum[2] += as_f32(values.z);
    sum[3] += as_f32(values.w);
  }
  for (u32 i = 0; i < 4; i++) st_global_f32(params.out + Config::kTile + 4 * lane + i, sum[i]);
}

template <class Config>
ISO_DEVICE void cp_async_kernel(const CpAsyncParams& params) {
  using namespace instr;
  CpAsyncStorage<Config>& smem = shared_storage<CpAsyncStorage<Config>>();
  if (tid_x() == 0)
    for (u32 s = 0; s < Config::kNumStages; s++) {
      mbarrier_init(smem_u32(&smem.full[s]), 32);
      mbarrier_init(smem_u32(&smem.empty[s]), 32);
    }
  bar_sync(0, Config::kThreads);
  if (tid_x() < 32) {
    cp_async_fill<Config>(params, smem);
  } else {
    cp_async_sum<Config>(params, smem);
    cp_async_own<Config>(params, smem);
  }
}

}  // namespace iso::test
