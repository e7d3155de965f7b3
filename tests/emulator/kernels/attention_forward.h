// O = softmax(scale Q K^T) V for head dimension 64, no mask; one CTA per 128 queries, tiles of 128 keys.
//
//   warpgroup 0      producer, 40 registers: one lane loads Q, then K and V tiles
//   warpgroups 1, 2  consumers, 224 registers: 64 queries each
//
//   barrier      arrivals                        waits       protects
//   q_full       producer, with tx bytes         consumers   q until read
//   k_full[s]    producer, with tx bytes         consumers   k[s] until read
//   v_full[s]    producer, with tx bytes         consumers   v[s] until read
//   k_empty[s]   one thread per consumer group   producer    k[s] while read
//   v_empty[s]   one thread per consumer group   producer    v[s] while read
#pragma once

#include "ring.h"

namespace iso::test {

struct AttentionForwardParams {
  instr::TensorMap q, k, v;
  float* out;       // [queries][64]
  float* lse_log2;  // [queries]: log2 of the softmax denominator, scale included
  u32 num_keys;
  float scale_log2;  // scale / ln 2
};

struct AttentionForwardConfig {
  static constexpr u32 kTileM = 128, kTileN = 128, kHeadDim = 64, kNumStages = 2, kNumConsumerGroups = 2;
  static constexpr u32 kThreads = 128 * (1 + kNumConsumerGroups);
  static constexpr u32 kTileBytes = kTileN * kHeadDim * sizeof(bf16);
  static_assert(kTileM == 64 * kNumConsumerGroups && kTileM == kTileN);
};

template <class Config>
struct AttentionForwardStorage {
  using Tile = instr::SharedArray<bf16, Config::kTileN * Config::kHeadDim>;
  alignas(1024) Tile q;
  alignas(1024) Tile k[Config::kNumStages];
  alignas(1024) Tile v[Config::kNumStages];
  instr::SharedBarrier q_full, k_full[Config::kNumStages], v_full[Config::kNumStages], k_empty[Config::kNumStages],
      v_empty[Config::kNumStages];
};

template <class Config>
ISO_DEVICE void forward_load(const AttentionForwardParams& params, AttentionForwardStorage<Config>& smem) {
  using namespace instr;
  const u32 q_full = smem_u32(&smem.q_full);
  mbarrier_arrive_expect_tx(q_full, Config::kTileBytes);
  cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.q), &params.q, q_full, 0,
                                        static_cast<i32>(ctaid_x() * Config::kTileM));
  Ring ring;
  for (u32 key = 0; key < params.num_keys; key += Config::kTileN, ring.advance(Config::kNumStages)) {
    const u32 k_full = smem_u32(&smem.k_full[ring.stage]), v_full = smem_u32(&smem.v_full[ring.stage]);
    mbarrier_wait_parity(smem_u32(&smem.k_empty[ring.stage]), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(k_full, Config::kTileBytes);
    cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.k[ring.stage]), &params.k, k_full, 0, static_cast<i32>(key));
    mbarrier_wait_parity(smem_u32(&smem.v_empty[ring.stage]), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(v_full, Config::kTileBytes);
    cp_async_bulk_tensor_2d_shared_global(smem_u32(&smem.v[ring.stage]), &params.v, v_full, 0, static_cast<i32>(key));
  }
}

// Of the two rows that a thread holds: maximum and sum so far, base 2.
struct SoftmaxRows {
  float maximum[2] = {-1e30f, -1e30f}, sum[2] = {0.0f, 0.0f};
};

// S becomes P, packed as the A operand of P V; the output so far is scaled to the new maximum.
template <class Config>
ISO_DEVICE void forward_softmax(instr::WgmmaAccumulator<Config::kTileN>& s, instr::WgmmaFragmentA (&p)[Config::kTileN / 16],
                                instr::WgmmaAccumulator<Config::kHeadDim>& out, SoftmaxRows& rows, float scale_log2) {
  using namespace instr;
  ISO_UNROLL
  for (int r = 0; r < 2; r++) {
    float maximum = rows.maximum[r];
    ISO_UNROLL
    for (int i = 2 * r; i < s.kCount; i += 4) maximum = max_f32(maximum, max_f32(s[i], s[i + 1]));
    maximum = max_f32(maximum, shfl_sync_bfly_f32(maximum, 1));
    maximum = max_f32(maximum, shfl_sync_bfly_f32(maximum, 2));
    const float alpha = ex2_approx_ftz_f32((rows.maximum[r] - maximum) * scale_log2);
    rows.maximum[r] = maximum;
    float sum = 0.0f;
    ISO_UNROLL
    for (int i = 2 * r; i < s.kCount; i += 4) {
      const float low = ex2_approx_ftz_f32((s[i] - maximum) * scale_log2);
      const float high = ex2_approx_ftz_f32((s[i + 1] - maximum) * scale_log2);
      sum += low + high;
      p[i / 8][i / 4 % 2 * 2 + r] = cvt_rn_bf16x2_f32(high, low);
    }
    rows.sum[r] = rows.sum[r] * alpha + sum;
    ISO_UNROLL
    for (int i = 2 * r; i < out.kCount; i += 4) {
      out[i] *= alpha;
      out[i + 1] *= alpha;
    }
  }
}

template <class Config>
ISO_DEVICE void forward_store(const AttentionForwardParams& params, instr::WgmmaAccumulator<Config::kHeadDim>& out,
                              SoftmaxRows& rows, u32 group) {
  using namespace instr;
  const int thread = static_cast<int>(tid_x() % 128);
  ISO_UNROLL
  for (int r = 0; r < 2; r++) {
    float sum = rows.sum[r] + shfl_sync_bfly_f32(rows.sum[r], 1);
    sum += shfl_sync_bfly_f32(sum, 2);
    const u32 row = ctaid_x() * Config::kTileM + group * 64 + static_cast<u32>(accumulator_row(thread, 2 * r));
    ISO_UNROLL
    for (int i = 2 * r; i < out.kCount; i += 4) {
      float* at = params.out + row * Config::kHeadDim + static_cast<u32>(accumulator_column(thread, i));
      st_global_v2_b32(at, {as_u32(out[i] / sum), as_u32(out[i + 1] / sum)});
    }
    if (thread % 4 == 0)
      st_global_f32(params.lse_log2 + row, rows.maximum[r] * params.scale_log2 + lg2_approx_ftz_f32(sum));
  }
}

template <class Config>
ISO_DEVICE void forward_attend(const AttentionForwardParams& params, AttentionForwardStorage<Config>& smem, u32 group) {
  using namespace instr;
  WgmmaAccumulator<Config::kHeadDim> out;
  ISO_UNROLL
  for (int i = 0; i < out.kCount; i++) out[i] = 0.0f;
  SoftmaxRows rows;
  const bool releases = tid_x() % 128 == 0;
  const u32 q = smem_u32(&smem.q) + group * 64 * kSwizzledRow;
  mbarrier_wait_parity(smem_u32(&smem.q_full), 0);
  Ring ring;
  for (u32 key = 0; key < params.num_keys; key += Config::kTileN, ring.advance(Config::kNumStages)) {
    const u32 k = smem_u32(&smem.k[ring.stage]), v = smem_u32(&smem.v[ring.stage]);
    WgmmaAccumulator<Config::kTileN> s;
    mbarrier_wait_parity(smem_u32(&smem.k_full[ring.stage]), ring.phase);
    wgmma_fence();
    ISO_UNROLL
    for (u32 d = 0; d < Config::kHeadDim; d += 16)
      wgmma_mma_async_ss<bf16, Major::k, Major::k>(s, k_major(q, d), k_major(k, d), d > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    register_fence(s);
    if (releases) mbarrier_arrive(smem_u32(&smem.k_empty[ring.stage]));
    WgmmaFragmentA p[Config::kTileN / 16];
    forward_softmax<Config>(s, p, out, rows, params.scale_log2);
    mbarrier_wait_parity(smem_u32(&smem.v_full[ring.stage]), ring.phase);
    register_fence(out);
    wgmma_fence();
    ISO_UNROLL
    for (u32 n = 0; n < Config::kTileN; n += 16) wgmma_mma_async_rs<bf16, Major::mn>(out, p[n / 16], mn_major(v, n), true);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    register_fence(out);
    if (releases) mbarrier_arrive(smem_u32(&smem.v_empty[ring.stage]));
  }
  forward_store<Config>(params, out, rows, group);
}

template <class Config>
ISO_DEVICE void attention_forward(const AttentionForwardParams& params) {
  using namespace instr;
  using Storage = AttentionForwardStorage<Config>;
  Storage& smem = shared_storage<Storage>();
  if (tid_x() == 0) {
    mbarrier_init(smem_u32(&smem.q_full), 1);
    for (u32 s = 0; s < Config::kNumStages; s++) {
      mbarrier_init(smem_u32(&smem.k_full[s]), 1);
      mbarrier_init(smem_u32(&smem.v_full[s]), 1);
      mbarrier_init(smem_u32(&smem.k_empty[s]), Config::kNumConsumerGroups);
      mbarrier_init(smem_u32(&smem.v_empty[s]), Config::kNumConsumerGroups);
    }
    fence_mbarrier_init_release_cluster();
  }
  bar_sync(0, Config::kThreads);
  const u32 warpgroup = tid_x() / 128;
  if (warpgroup == 0) {
    setmaxnreg_dec<40>();
    if (tid_x() < 32 && elect_sync()) forward_load<Config>(params, smem);
  } else {
    setmaxnreg_inc<224>();
    forward_attend<Config>(params, smem, warpgroup - 1);
  }
}

}  // namespace iso::test
