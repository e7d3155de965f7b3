// C[m][n] = sum over k of A[m][k] B[n][k]; bf16 in, fp32 out; one CTA per 64 x 64 tile of C.
//
//   warpgroup 0   consumer: wgmma on the stages, stores its tile through shared memory
//   warp 4        producer: one lane loads 64 x 64 tiles of A and B
//
//   barrier    arrivals                     waits      protects
//   full[s]    producer, with tx bytes      consumer   a[s], b[s] until read
//   empty[s]   thread 0 of the consumer     producer   a[s], b[s] while read
//   named 1    128 consumers                           c, before it is stored
#pragma once

#include "ring.h"

namespace iso::test {

struct GemmParams {
  instr::TensorMap a, b, c;
  u32 k;
};

struct GemmConfig {
  static constexpr u32 kTile = 64, kNumStages = 2, kNumConsumers = 128, kThreads = kNumConsumers + 32;
  static constexpr u32 kTileBytes = kTile * kTile * sizeof(bf16);
};

template <class Config>
struct GemmStorage {
  static constexpr u32 kElements = Config::kTile * Config::kTile;
  alignas(1024) instr::SharedArray<bf16, kElements> a[Config::kNumStages];
  alignas(1024) instr::SharedArray<bf16, kElements> b[Config::kNumStages];
  alignas(128) instr::SharedArray<float, kElements> c;
  instr::SharedBarrier full[Config::kNumStages], empty[Config::kNumStages];
};

template <class Config>
ISO_DEVICE void gemm_load(const GemmParams& params, GemmStorage<Config>& smem) {
  using namespace instr;
  Ring ring;
  for (u32 k = 0; k < params.k; k += Config::kTile, ring.advance(Config::kNumStages)) {
    const u32 full = smem_u32(&smem.full[ring.stage]);
    mbarrier_wait_parity(smem_u32(&smem.empty[ring.stage]), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(full, 2 * Config::kTileBytes);
    cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.a[ring.stage]), &params.a, full, static_cast<i32>(k),
                                          static_cast<i32>(ctaid_y() * Config::kTile));
    cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.b[ring.stage]), &params.b, full, static_cast<i32>(k),
                                          static_cast<i32>(ctaid_x() * Config::kTile));
  }
}

template <class Config>
ISO_DEVICE void gemm_multiply(const GemmParams& params, GemmStorage<Config>& smem) {
  using namespace instr;
  WgmmaAccumulator<Config::kTile> acc;
  Ring ring;
  for (u32 k = 0; k < params.k; k += Config::kTile, ring.advance(Config::kNumStages)) {
    const u32 a = smem_u32(&smem.a[ring.stage]), b = smem_u32(&smem.b[ring.stage]);
    mbarrier_wait_parity(smem_u32(&smem.full[ring.stage]), ring.phase);
    wgmma_fence();
    ISO_UNROLL
    for (u32 step = 0; step < Config::kTile; step += 16)
      wgmma_mma_async_ss<bf16, Major::k, Major::k>(acc, k_major(a, step), k_major(b, step), k + step > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    register_fence(acc);
    if (tid_x() == 0) mbarrier_arrive(smem_u32(&smem.empty[ring.stage]));
  }
  const int thread = static_cast<int>(tid_x());
  const u32 c = smem_u32(&smem.c);
  ISO_UNROLL
  for (int i = 0; i < acc.kCount; i++)
    st_shared_f32(c + 4 * static_cast<u32>(accumulator_row(thread, i) * static_cast<int>(Config::kTile) +
                                           accumulator_column(thread, i)),
                  acc[i]);
  fence_proxy_async_shared_cta();
  bar_sync(1, Config::kNumConsumers);
  if (thread == 0) {
    cp_async_bulk_tensor_2d_global_shared(&params.c, c, static_cast<i32>(ctaid_x() * Config::kTile),
                                          static_cast<i32>(ctaid_y() * Config::kTile));
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();
  }
}

template <class Config>
ISO_DEVICE void gemm(const GemmParams& params) {
  using namespace instr;
  GemmStorage<Config>& smem = shared_storage<GemmStorage<Config>>();
  if (tid_x() == 0) {
    for (u32 s = 0; s < Config::kNumStages; s++) {
      mbarrier_init(smem_u32(&smem.full[s]), 1);
      mbarrier_init(smem_u32(&smem.empty[s]), 1);
    }
    fence_mbarrier_init_release_cluster();
  }
  bar_sync(0, Config::kThreads);
  if (tid_x() < Config::kNumConsumers)
    gemm_multiply<Config>(params, smem);
  else if (elect_sync())
    gemm_load<Config>(params, smem);
}

}  // namespace iso::test
