// dQ, dK, dV of attention for head dimension 128, no mask; one CTA per 128 keys, tiles of 64 queries.
//
//   S^T = K Q^T, dP^T = V dO^T     operands in shared memory, K-major
//   dV += P^T dO, dK += dS^T Q     P^T and dS^T in registers, dO and Q MN-major
//   dQ += dS K                     dS through shared memory, both operands MN-major; the copy engine adds
//
//   warpgroup 0      producer, 24 registers
//   warpgroups 1, 2  consumers, 240 registers: 64 keys each, and half of dQ's columns each
//
//   barrier      arrivals                        waits       protects
//   kv_full      producer, with tx bytes         consumers   k, v until read
//   q_full[s]    producer, with tx bytes         consumers   q[s], lse[s]
//   do_full[s]   producer, with tx bytes         consumers   dout[s], delta[s]
//   empty[s]     one thread per consumer group   producer    all of stage s while read
//   named 1      256 consumers                               ds, complete before dQ's product
//   named 2      256 consumers                               ds, read before it is overwritten
//   named 3, 4   128 threads of one group                    dq, its staging buffer
#pragma once

#include "ring.h"

namespace iso::test {

struct AttentionBackwardParams {
  instr::TensorMap k, v, q, dout, lse_log2, delta, dq;
  float *dk, *dv;  // [keys][128]
  u32 num_queries;
  float scale;
};

struct AttentionBackwardConfig {
  static constexpr u32 kTileM = 64, kTileN = 128, kHeadDim = 128, kNumStages = 2, kNumConsumerGroups = 2;
  static constexpr u32 kThreads = 128 * (1 + kNumConsumerGroups);
  static constexpr u32 kHalf = 64;  // columns of one swizzled tile
  static constexpr u32 kKeyHalfBytes = kTileN * kHalf * sizeof(bf16), kQueryHalfBytes = kTileM * kHalf * sizeof(bf16);
  static constexpr u32 kRowBytes = kTileM * sizeof(float);
};

template <class Config>
struct AttentionBackwardStorage {
  using KeyHalf = instr::SharedArray<bf16, Config::kTileN * Config::kHalf>;
  using QueryHalf = instr::SharedArray<bf16, Config::kTileM * Config::kHalf>;
  using Rows = instr::SharedArray<float, Config::kTileM>;
  alignas(1024) KeyHalf k[2];
  alignas(1024) KeyHalf v[2];
  alignas(1024) QueryHalf q[Config::kNumStages][2];
  alignas(1024) QueryHalf dout[Config::kNumStages][2];
  alignas(1024) instr::SharedArray<bf16, Config::kTileN * Config::kTileM> ds;
  alignas(1024) instr::SharedArray<float, Config::kTileM * Config::kHalf> dq[Config::kNumConsumerGroups];
  alignas(128) Rows lse_log2[Config::kNumStages];
  alignas(128) Rows delta[Config::kNumStages];
  instr::SharedBarrier kv_full, q_full[Config::kNumStages], do_full[Config::kNumStages], empty[Config::kNumStages];
};

template <class Config>
ISO_DEVICE void backward_load(const AttentionBackwardParams& params, AttentionBackwardStorage<Config>& smem) {
  using namespace instr;
  const u32 kv_full = smem_u32(&smem.kv_full);
  const i32 first_key = static_cast<i32>(ctaid_x() * Config::kTileN), half = Config::kHalf;
  mbarrier_arrive_expect_tx(kv_full, 4 * Config::kKeyHalfBytes);
  for (i32 h = 0; h < 2; h++) {
    cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.k[h]), &params.k, kv_full, h * half, first_key);
    cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.v[h]), &params.v, kv_full, h * half, first_key);
  }
  Ring ring;
  for (u32 query = 0; query < params.num_queries; query += Config::kTileM, ring.advance(Config::kNumStages)) {
    const u32 s = ring.stage, q_full = smem_u32(&smem.q_full[s]), do_full = smem_u32(&smem.do_full[s]);
    const i32 row = static_cast<i32>(query);
    mbarrier_wait_parity(smem_u32(&smem.empty[s]), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(q_full, 2 * Config::kQueryHalfBytes + Config::kRowBytes);
    for (i32 h = 0; h < 2; h++)
      cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.q[s][h]), &params.q, q_full, h * half, row);
    cp_async_bulk_tensor_1d_shared_global(smem_u32(&smem.lse_log2[s]), &params.lse_log2, q_full, row);
    mbarrier_arrive_expect_tx(do_full, 2 * Config::kQueryHalfBytes + Config::kRowBytes);
    for (i32 h = 0; h < 2; h++)
      cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.dout[s][h]), &params.dout, do_full, h * half, row);
    cp_async_bulk_tensor_1d_shared_global(smem_u32(&smem.delta[s]), &params.delta, do_full, row);
  }
}

// The transposed product of 64 keys with the stage's queries over the head dimension, not waited for.
template <class Config, class KeyHalf, class QueryHalf>
ISO_DEVICE void backward_scores(instr::WgmmaAccumulator<Config::kTileM>& s, KeyHalf (&keys)[2], QueryHalf (&queries)[2],
                                u32 group) {
  using namespace instr;
  wgmma_fence();
  ISO_UNROLL
  for (u32 d = 0; d < Config::kHeadDim; d += 16) {
    const u32 h = d / Config::kHalf, column = d % Config::kHalf;
    wgmma_mma_async_ss<bf16, Major::k, Major::k>(s, k_major(smem_u32(&keys[h]) + group * 64 * kSwizzledRow, column),
                                                 k_major(smem_u32(&queries[h]), column), d > 0);
  }
  wgmma_commit_group();
}

// S^T becomes P^T; dP^T becomes dS^T; both packed as A operands.
template <class Config>
ISO_DEVICE void backward_p_and_ds(const AttentionBackwardParams& params, AttentionBackwardStorage<Config>& smem, u32 stage,
                                  instr::WgmmaAccumulator<Config::kTileM>& s, instr::WgmmaAccumulator<Config::kTileM>& dp,
                                  instr::WgmmaFragmentA (&p)[Config::kTileM / 16],
                                  instr::WgmmaFragmentA (&ds)[Config::kTileM / 16]) {
  using namespace instr;
  const int thread = static_cast<int>(tid_x() % 128);
  const u32 lse = smem_u32(&smem.lse_log2[stage]), delta = smem_u32(&smem.delta[stage]);
  const float scale_log2 = params.scale * 1.44269504f;
  wgmma_wait_group<1>();
  register_fence(s);
  ISO_UNROLL
  for (int i = 0; i < s.kCount; i += 2) {
    const u32 column = 4 * static_cast<u32>(accumulator_column(thread, i));
    s[i] = ex2_approx_ftz_f32(s[i] * scale_log2 - ld_shared_f32(lse + column));
    s[i + 1] = ex2_approx_ftz_f32(s[i + 1] * scale_log2 - ld_shared_f32(lse + column + 4));
    p[i / 8][i / 4 % 2 * 2 + i / 2 % 2] = cvt_rn_bf16x2_f32(s[i + 1], s[i]);
  }
  wgmma_wait_group<0>();
  register_fence(dp);
  ISO_UNROLL
  for (int i = 0; i < s.kCount; i += 2) {
    const u32 column = 4 * static_cast<u32>(accumulator_column(thread, i));
    ds[i / 8][i / 4 % 2 * 2 + i / 2 % 2] = cvt_rn_bf16x2_f32(s[i + 1] * (dp[i + 1] - ld_shared_f32(delta + column + 4)),
                                                             s[i] * (dp[i] - ld_shared_f32(delta + column)));
  }
}

// dS^T of 64 keys goes to shared memory, swizzled like a tensor load would.
template <class Config>
ISO_DEVICE void backward_store_ds(AttentionBackwardStorage<Config>& smem, instr::WgmmaFragmentA (&ds)[Config::kTileM / 16],
                                  u32 group) {
  using namespace instr;
  const int thread = static_cast<int>(tid_x() % 128);
  ISO_UNROLL
  for (int i = 0; i < static_cast<int>(Config::kTileM) / 2; i += 2) {
    const u32 key = group * 64 + static_cast<u32>(accumulator_row(thread, i));
    const u32 query = static_cast<u32>(accumulator_column(thread, i));
    const u32 address = smem_u32(&smem.ds) + key * kSwizzledRow + 2 * query;
    st_shared_b32(address ^ (key & 7) << 4, ds[i / 8][i / 4 % 2 * 2 + i / 2 % 2]);
  }
  fence_proxy_async_shared_cta();
}

// This group's 64 columns of dQ: staged in shared memory, then added to global memory.
template <class Config>
ISO_DEVICE void backward_add_dq(const AttentionBackwardParams& params, AttentionBackwardStorage<Config>& smem,
                                instr::WgmmaAccumulator<Config::kHalf>& dq, u32 group, u32 query) {
  using namespace instr;
  const int thread = static_cast<int>(tid_x() % 128);
  const u32 staging = smem_u32(&smem.dq[group]);
  if (thread == 0) cp_async_bulk_wait_group_read<0>();
  bar_sync(3 + group, 128);
  ISO_UNROLL
  for (int i = 0; i < dq.kCount; i += 2)
    st_shared_v2_b32(staging + 4 * static_cast<u32>(accumulator_row(thread, i) * static_cast<int>(Config::kHalf) +
                                                    accumulator_column(thread, i)),
                     {as_u32(dq[i] * params.scale), as_u32(dq[i + 1] * params.scale)});
  fence_proxy_async_shared_cta();
  bar_sync(3 + group, 128);
  if (thread == 0) {
    cp_reduce_async_bulk_tensor_2d_global_shared_add(&params.dq, staging, static_cast<i32>(group * Config::kHalf),
                                                     static_cast<i32>(query));
    cp_async_bulk_commit_group();
  }
}

template <class Config>
ISO_DEVICE void backward_store_dkv(const AttentionBackwardParams& params, instr::WgmmaAccumulator<Config::kHeadDim>& dk,
                                   instr::WgmmaAccumulator<Config::kHeadDim>& dv, u32 group) {
  using namespace instr;
  const int thread = static_cast<int>(tid_x() % 128);
  ISO_UNROLL
  for (int i = 0; i < dk.kCount; i += 2) {
    const u32 key = ctaid_x() * Config::kTileN + group * 64 + static_cast<u32>(accumulator_row(thread, i));
    const u32 at = key * Config::kHeadDim + static_cast<u32>(accumulator_column(thread, i));
    st_global_v2_b32(params.dk + at, {as_u32(dk[i] * params.scale), as_u32(dk[i + 1] * params.scale)});
    st_global_v2_b32(params.dv + at, {as_u32(dv[i]), as_u32(dv[i + 1])});
  }
}

template <class Config>
ISO_DEVICE void backward_differentiate(const AttentionBackwardParams& params, AttentionBackwardStorage<Config>& smem,
                                       u32 group) {
  using namespace instr;
  constexpr u32 kConsumers = 128 * Config::kNumConsumerGroups;
  WgmmaAccumulator<Config::kHeadDim> dk, dv;
  ISO_UNROLL
  for (int i = 0; i < dk.kCount; i++) dk[i] = dv[i] = 0.0f;
  mbarrier_wait_parity(smem_u32(&smem.kv_full), 0);
  Ring ring;
  for (u32 query = 0; query < params.num_queries; query += Config::kTileM, ring.advance(Config::kNumStages)) {
    const u32 stage = ring.stage, q = smem_u32(&smem.q[stage][0]), dout = smem_u32(&smem.dout[stage][0]);
    WgmmaAccumulator<Config::kTileM> s, dp;
    WgmmaFragmentA p[Config::kTileM / 16], ds[Config::kTileM / 16];
    mbarrier_wait_parity(smem_u32(&smem.q_full[stage]), ring.phase);
    backward_scores<Config>(s, smem.k, smem.q[stage], group);
    mbarrier_wait_parity(smem_u32(&smem.do_full[stage]), ring.phase);
    backward_scores<Config>(dp, smem.v, smem.dout[stage], group);
    backward_p_and_ds<Config>(params, smem, stage, s, dp, p, ds);

    if (query > 0) bar_sync(2, kConsumers);
    backward_store_ds<Config>(smem, ds, group);
    register_fence(dk);
    register_fence(dv);
    wgmma_fence();
    ISO_UNROLL
    for (u32 m = 0; m < Config::kTileM; m += 16)
      wgmma_mma_async_rs<bf16, Major::mn>(dv, p[m / 16], mn_major(dout, m, Config::kQueryHalfBytes), true);
    ISO_UNROLL
    for (u32 m = 0; m < Config::kTileM; m += 16)
      wgmma_mma_async_rs<bf16, Major::mn>(dk, ds[m / 16], mn_major(q, m, Config::kQueryHalfBytes), true);
    wgmma_commit_group();

    bar_sync(1, kConsumers);
    WgmmaAccumulator<Config::kHalf> dq;
    ISO_UNROLL
    for (u32 n = 0; n < Config::kTileN; n += 16)
      wgmma_mma_async_ss<bf16, Major::mn, Major::mn>(dq, mn_major(smem_u32(&smem.ds), n),
                                                     mn_major(smem_u32(&smem.k[group]), n), n > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    register_fence(dq);
    register_fence(dk);
    register_fence(dv);
    if (tid_x() % 128 == 0) mbarrier_arrive(smem_u32(&smem.empty[stage]));
    backward_add_dq<Config>(params, smem, dq, group, query);
  }
  backward_store_dkv<Config>(params, dk, dv, group);
  if (tid_x() % 128 == 0) cp_async_bulk_wait_group_read<0>();
}

template <class Config>
ISO_DEVICE void attention_backward(const AttentionBackwardParams& params) {
  using namespace instr;
  using Storage = AttentionBackwardStorage<Config>;
  Storage& smem = shared_storage<Storage>();
  if (tid_x() == 0) {
    mbarrier_init(smem_u32(&smem.kv_full), 1);
    for (u32 s = 0; s < Config::kNumStages; s++) {
      mbarrier_init(smem_u32(&smem.q_full[s]), 1);
      mbarrier_init(smem_u32(&smem.do_full[s]), 1);
      mbarrier_init(smem_u32(&smem.empty[s]), Config::kNumConsumerGroups);
    }
    fence_mbarrier_init_release_cluster();
  }
  bar_sync(0, Config::kThreads);
  const u32 warpgroup = tid_x() / 128;
  if (warpgroup == 0) {
    setmaxnreg_dec<24>();
    if (tid_x() < 32 && elect_sync()) backward_load<Config>(params, smem);
  } else {
    setmaxnreg_inc<240>();
    backward_differentiate<Config>(params, smem, warpgroup - 1);
  }
}

}  // namespace iso::test
