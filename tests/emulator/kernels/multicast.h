// out[row][column] = sum over the tiles of a row-major matrix, tile after tile: every CTA of a cluster loads its part of
// each tile and multicasts it to all, then sums the tile's rows that are its own.
//
//   barrier    arrivals                              waits      protects
//   full[s]    own producer, with tx bytes           consumers  tile[s] until read
//   empty[s]   one consumer thread of every CTA      producer   tile[s] of all CTAs while read
//   cluster    everyone, at the beginning and end               barriers exist; nobody ends while others still arrive
#pragma once

#include "ring.h"

namespace iso::test {

struct MulticastParams {
  instr::TensorMap in;  // [tiles * 32][32] floats, boxes of (32 / cluster size) rows
  float* out;           // [32][32]
  u32 num_tiles;
};

struct MulticastConfig {
  static constexpr u32 kTile = 32, kNumStages = 2, kClusterSize = 4, kThreads = 32 + kTile;
  static constexpr u32 kPartRows = kTile / kClusterSize, kTileBytes = kTile * kTile * sizeof(float);
};

template <class Config>
struct MulticastStorage {
  alignas(128) instr::SharedArray<float, Config::kTile * Config::kTile> tile[Config::kNumStages];
  instr::SharedBarrier full[Config::kNumStages], empty[Config::kNumStages];
};

template <class Config>
ISO_DEVICE void multicast_load(const MulticastParams& params, MulticastStorage<Config>& smem) {
  using namespace instr;
  const u32 rank = cluster_ctarank();
  Ring ring;
  for (u32 tile = 0; tile < params.num_tiles; tile++, ring.advance(Config::kNumStages)) {
    const u32 full = smem_u32(&smem.full[ring.stage]);
    mbarrier_wait_parity(smem_u32(&smem.empty[ring.stage]), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(full, Config::kTileBytes);
    const u32 part = rank * Config::kPartRows;
    cp_async_bulk_tensor_2d_shared_global_multicast(smem_u32(&smem.tile[ring.stage]) + part * Config::kTile * 4, &params.in,
                                                    full, 0, static_cast<i32>(tile * Config::kTile + part),
                                                    static_cast<u16>((1u << Config::kClusterSize) - 1));
  }
}

template <class Config>
ISO_DEVICE void multicast_sum(const MulticastParams& params, MulticastStorage<Config>& smem) {
  using namespace instr;
  const u32 column = tid_x() - 32, rank = cluster_ctarank();
  float sum[Config::kPartRows] = {};
  Ring ring;
  for (u32 tile = 0; tile < params.num_tiles; tile++, ring.advance(Config::kNumStages)) {
    mbarrier_wait_parity(smem_u32(&smem.full[ring.stage]), ring.phase);
    for (u32 r = 0; r < Config::kPartRows; r++)
      sum[r] +=
          ld_shared_f32(smem_u32(&smem.tile[ring.stage]) + 4 * ((rank * Config::kPartRows + r) * Config::kTile + column));
    bar_warp_sync();
    if (column < Config::kClusterSize)
      mbarrier_arrive_cluster(mapa_shared_cluster(smem_u32(&smem.empty[ring.stage]), column));
  }
  for (u32 r = 0; r < Config::kPartRows; r++)
    st_global_f32(params.out + (rank * Config::kPartRows + r) * Config::kTile + column, sum[r]);
}

template <class Config>
ISO_DEVICE void multicast(const MulticastParams& params) {
  using namespace instr;
  MulticastStorage<Config>& smem = shared_storage<MulticastStorage<Config>>();
  if (tid_x() == 0) {
    for (u32 s = 0; s < Config::kNumStages; s++) {
      mbarrier_init(smem_u32(&smem.full[s]), 1);
      mbarrier_init(smem_u32(&smem.empty[s]), Config::kClusterSize);
    }
    fence_mbarrier_init_release_cluster();
  }
  barrier_cluster_arrive();
  barrier_cluster_wait();
  if (tid_x() >= 32)
    multicast_sum<Config>(params, smem);
  else if (elect_sync())
    multicast_load<Config>(params, smem);
  barrier_cluster_arrive();
  barrier_cluster_wait();
}

}  // namespace iso::test
