// Rules of wgmma, and what it computes for every N, major and swizzle mode.
#include "support.h"

namespace iso::test {
namespace {

using namespace instr;  // NOLINT: kernels are written in its words
using emu::LaunchConfig;

constexpr u32 kBytes = 64 * 1024;
const LaunchConfig kWarpgroup{.threads = 128, .shared_bytes = kBytes};

struct Bytes {
  alignas(1024) SharedArray<u8, kBytes> data;
};
u32 base() { return smem_u32(&shared_storage<Bytes>()); }

void fill_shared(u32 value, u32 bytes) {
  for (u32 i = 4 * tid_x(); i < bytes; i += 4 * ntid_x()) st_shared_b32(base() + i, value);
  fence_proxy_async();
  bar_sync(0, ntid_x());
}

u64 operand(u32 offset = 0) { return matrix_descriptor(base() + offset, 0, 1024, instr::Swizzle::b128); }

void clear(WgmmaAccumulator<64>& d) {
  for (int i = 0; i < d.kCount; i++) d[i] = 0.0f;
}

// One product of ones: every element is 16.
void product(WgmmaAccumulator<64>& d, bool scale_d = false) {
  wgmma_fence();
  wgmma_mma_async_ss<bf16, Major::k, Major::k>(d, operand(), operand(8192), scale_d);
  wgmma_commit_group();
}

constexpr u32 kOnes = 0x3f803f80;

TEST(Wgmma, AProductOfOnes) {
  expect_silent(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    product(d);
    wgmma_wait_group<0>();
    for (int i = 0; i < d.kCount; i++) EXPECT_EQ(d[i], 16.0f);
    product(d, true);
    wgmma_wait_group<0>();
    for (int i = 0; i < d.kCount; i++) EXPECT_EQ(d[i], 32.0f);
  });
}

TEST(Wgmma, NeedsProxyFenceAndInitialisedOperands) {
  expect_fault<errors::ProxyFenceMissing>(kWarpgroup, [] {
    for (u32 i = 4 * tid_x(); i < 16384; i += 512) st_shared_b32(base() + i, kOnes);
    bar_sync(0, 128);
    WgmmaAccumulator<64> d;
    product(d);
    wgmma_wait_group<0>();
  });
  expect_fault<errors::UninitialisedRead>(kWarpgroup, [] {
    fill_shared(kOnes, 8192);
    WgmmaAccumulator<64> d;
    product(d);
    wgmma_wait_group<0>();
  });
  expect_fault<errors::UninitialisedRead>(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    product(d, true);
    wgmma_wait_group<0>();
  });
}

TEST(ErrorsRaised, WgmmaFenceMissing) {
  const auto without_fence = [](WgmmaAccumulator<64>& d) {
    wgmma_mma_async_ss<bf16, Major::k, Major::k>(d, operand(), operand(8192), true);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  };
  expect_fault<errors::WgmmaFenceMissing>(kWarpgroup, [&] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    clear(d);
    without_fence(d);
  });
  const auto touch_after_fence = [&] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    wgmma_fence();
    clear(d);
    without_fence(d);
  };
  expect_mentions(expect_fault<errors::WgmmaFenceMissing>(kWarpgroup, touch_after_fence), {"accessed after"});
  LaunchConfig lenient = kWarpgroup;
  lenient.rules.wgmma_fence_after_register_access = false;
  expect_silent(lenient, touch_after_fence);
  expect_fault<errors::WgmmaFenceMissing>(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    WgmmaFragmentA a;
    wgmma_fence();
    for (int i = 0; i < 4; i++) a[i] = kOnes;
    wgmma_mma_async_rs<bf16, Major::k>(d, a, operand(8192), false);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  });
  // Registers that are not touched need no new fence.
  expect_silent(kWarpgroup, [&] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    clear(d);
    wgmma_fence();
    without_fence(d);
    without_fence(d);
  });
}

TEST(ErrorsRaised, WgmmaOperandsDiffer) {
  expect_fault<errors::WgmmaOperandsDiffer>(kWarpgroup, [] {
    fill_shared(kOnes, 32768);
    WgmmaAccumulator<64> d;
    wgmma_fence();
    wgmma_mma_async_ss<bf16, Major::k, Major::k>(d, operand(), operand(tid_x() / 32 == 2 ? 16384 : 8192), false);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  });
  expect_fault<errors::WgmmaOperandsDiffer>(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d[2];
    wgmma_fence();
    for (int i = 0; i < 2; i++) wgmma_mma_async_ss<bf16, Major::k, Major::k>(d[i], operand(), operand(8192), false);
    wgmma_mma_async_ss<bf16, Major::k, Major::k>(d[tid_x() / 64], operand(), operand(8192), true);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  });
  expect_fault<errors::WgmmaOperandsDiffer>({.threads = 160, .shared_bytes = kBytes}, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    if (tid_x() >= 128) product(d);
  });
  // A warp that does not come is a deadlock.
  expect_mentions(expect_fault<errors::Deadlock>(kWarpgroup,
                                                 [] {
                                                   fill_shared(kOnes, 16384);
                                                   WgmmaAccumulator<64> d;
                                                   if (tid_x() >= 96) return;
                                                   product(d);
                                                   wgmma_wait_group<0>();
                                                 }),
                  {"96 of 128 threads have come", "threads 96-127 have finished"});
}

TEST(ErrorsRaised, RegistersInFlight) {
  const std::string message = expect_fault<errors::RegistersInFlight>(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    product(d);
    const float x = d[3] > 0.0f ? d[3] : 0.0f;  // a comparison would swallow a NaN
    wgmma_wait_group<0>();
    st_shared_f32(base() + 32768, x);
  });
  expect_mentions(message, {"accumulator 3", "rules_wgmma_test.cpp:", "wgmma_wait_group"});
  expect_fault<errors::RegistersInFlight>(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> first, second;
    product(first);
    product(second);
    wgmma_wait_group<1>();
    EXPECT_EQ(first[0], 16.0f);
    second[0] = 0.0f;
  });
  expect_fault<errors::RegistersInFlight>(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    WgmmaFragmentA a;
    for (int i = 0; i < 4; i++) a[i] = kOnes;
    wgmma_fence();
    wgmma_mma_async_rs<bf16, Major::k>(d, a, operand(8192), false);
    wgmma_commit_group();
    a[0] = 0;  // packed anew too early
    wgmma_wait_group<0>();
  });
  // Without a commit no group covers the product.
  expect_fault<errors::RegistersInFlight>(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    wgmma_fence();
    wgmma_mma_async_ss<bf16, Major::k, Major::k>(d, operand(), operand(8192), false);
    wgmma_wait_group<0>();
    d[0] = 0.0f;
  });
}

TEST(Wgmma, NothingIsInFlightAtTheEnd) {
  expect_fault<errors::ExitInFlight>(kWarpgroup, [] {
    fill_shared(kOnes, 16384);
    {
      WgmmaAccumulator<64> d;
      product(d);
    }
    wgmma_wait_group<0>();
  });
}

TEST(Wgmma, OperandsMayNotBeOverwrittenInFlight) {
  const auto kernel = [](bool wait) {
    fill_shared(kOnes, 16384);
    WgmmaAccumulator<64> d;
    product(d);
    if (wait) wgmma_wait_group<0>();
    bar_sync(1, 128);
    st_shared_b32(base() + 4 * tid_x(), 0);
    wgmma_wait_group<0>();
    for (int i = 0; i < d.kCount; i++) EXPECT_EQ(d[i], 16.0f);
  };
  expect_mentions(expect_fault<errors::RaceWriteAfterRead>(kWarpgroup, [&] { kernel(false); }), {"wgmma of warpgroup 0"});
  expect_silent(kWarpgroup, [&] { kernel(true); });
}

TEST(ErrorsRaised, MatrixDescriptorInvalid) {
  for (const u64 bit : {u64{1} << 14, u64{1} << 46, u64{1} << 49, u64{1} << 60})
    expect_fault<errors::MatrixDescriptorInvalid>(kWarpgroup, [&] {
      fill_shared(kOnes, 16384);
      WgmmaAccumulator<64> d;
      wgmma_fence();
      wgmma_mma_async_ss<bf16, Major::k, Major::k>(d, operand() | bit, operand(8192), false);
    });
}

TEST(Wgmma, TheLastByteOfAnOperandDecides) {
  const auto kernel = [](u32 offset) {
    fill_shared(kOnes, kBytes);
    WgmmaAccumulator<64> d;
    wgmma_fence();
    wgmma_mma_async_ss<bf16, Major::k, Major::k>(d, operand(), operand(offset), false);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  };
  expect_silent(kWarpgroup, [&] { kernel(kBytes - 8192); });
  expect_fault<errors::SharedOutOfBounds>(kWarpgroup, [&] { kernel(kBytes - 7168); });
}

TEST(ErrorsRaised, SwizzleMismatch) {
  const std::vector<bf16> in = random_bf16(64 * 64, 1);
  const TensorMap map = tensor_map_2d(in.data(), emu::TensorType::bf16, 64, 64, 64, 64, emu::Swizzle::b128);
  const auto kernel = [&](instr::Swizzle swizzle) {
    const u32 barrier = base() + 32768;
    if (tid_x() == 0) {
      mbarrier_init(barrier, 1);
      fence_mbarrier_init_release_cluster();
    }
    bar_sync(0, 128);
    if (tid_x() == 0) {
      mbarrier_arrive_expect_tx(barrier, 8192);
      cp_async_bulk_tensor_2d_shared_global(base(), &map, barrier, 0, 0);
    }
    mbarrier_wait_parity(barrier, 0);
    WgmmaAccumulator<64> d;
    const u64 desc = matrix_descriptor(base(), 0, 1024, swizzle);
    wgmma_fence();
    wgmma_mma_async_ss<bf16, Major::k, Major::k>(d, desc, desc, false);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  };
  const auto fill = [&](Memory& m) { m.add(in, "in"); };
  expect_mentions(expect_fault<errors::SwizzleMismatch>(
                      kWarpgroup, [&] { kernel(instr::Swizzle::b64); }, fill),
                  {"64-byte swizzle", "128-byte swizzle"});
  expect_silent(
      kWarpgroup, [&] { kernel(instr::Swizzle::b128); }, fill);
}

// --- what is computed ------------------------------------------------------------------------------------------------

float value_a(u32 m, u32 k) { return static_cast<float>(static_cast<int>(m * 3 + k * 5) % 7 - 3); }
float value_b(u32 n, u32 k) { return static_cast<float>(static_cast<int>(n * 2 + k * 11) % 5 - 2); }

template <class T>
u16 bits_of(float x) {
  return from_float<T>(x).bits;
}

// Element (mn, k) of an operand in the layout that the descriptors below describe; swizzle span of `row` elements.
u32 element_offset(u32 row, bool mn_major, u32 mn, u32 k) {
  const u32 span = 2 * row, block = 8 * span;  // bytes of a row of the pattern and of 8 such rows
  u32 offset;
  if (!mn_major)
    offset = row == 8 ? mn / 8 * 256 + k / 8 * 128 + mn % 8 * 16 + k % 8 * 2 : mn / 8 * block + mn % 8 * span + k * 2;
  else
    offset = row == 8 ? mn / 8 * 256 + k / 8 * 128 + k % 8 * 16 + mn % 8 * 2
                      : mn / row * 2 * block + k / 8 * block + k % 8 * span + mn % row * 2;
  const u32 mask = row == 8 ? 0 : (row / 8 - 1) << 4;
  return offset ^ ((offset >> 3) & mask);
}

u64 descriptor_of(u32 address, u32 row, bool mn_major) {
  const u32 block = 16 * row;
  const instr::Swizzle mode = row == 64   ? instr::Swizzle::b128
                              : row == 32 ? instr::Swizzle::b64
                              : row == 16 ? instr::Swizzle::b32
                                          : instr::Swizzle::none;
  if (row == 8) return matrix_descriptor(address, 128, 256, mode);
  return mn_major ? matrix_descriptor(address, 2 * block, block, mode) : matrix_descriptor(address, 0, block, mode);
}

template <class T, Major kA, Major kB, int N>
void check_product(u32 row) {
  constexpr u32 kB0 = 16384;
  const bool a_mn = kA == Major::mn, b_mn = kB == Major::mn;
  expect_silent({.threads = 128, .shared_bytes = kBytes, .seed = 1}, [&] {
    fill_shared(0, kBytes);
    for (u32 i = tid_x(); i < 64 * 16; i += 128)
      st_shared_b16(base() + element_offset(row, a_mn, i / 16, i % 16), bits_of<T>(value_a(i / 16, i % 16)));
    for (u32 i = tid_x(); i < N * 16; i += 128)
      st_shared_b16(base() + kB0 + element_offset(row, b_mn, i / 16, i % 16), bits_of<T>(value_b(i / 16, i % 16)));
    fence_proxy_async();
    bar_sync(1, 128);
    WgmmaAccumulator<N> d, e;
    WgmmaFragmentA a;
    const int thread = static_cast<int>(tid_x());
    for (int i = 0; i < 4; i++) {
      const u32 m = static_cast<u32>(accumulator_row(thread, 2 * (i % 2)));
      const u32 k = static_cast<u32>(accumulator_column(thread, 4 * (i / 2)));
      a[i] = static_cast<u32>(bits_of<T>(value_a(m, k + 1))) << 16 | bits_of<T>(value_a(m, k));
    }
    wgmma_fence();
    wgmma_mma_async_ss<T, kA, kB>(d, descriptor_of(base(), row, a_mn), descriptor_of(base() + kB0, row, b_mn), false);
    wgmma_mma_async_rs<T, kB>(e, a, descriptor_of(base() + kB0, row, b_mn), false);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    for (int i = 0; i < d.kCount; i++) {
      float expected = 0;
      for (u32 k = 0; k < 16; k++)
        expected += value_a(static_cast<u32>(accumulator_row(thread, i)), k) *
                    value_b(static_cast<u32>(accumulator_column(thread, i)), k);
      ASSERT_EQ(d[i], expected) << "N " << N << ", swizzle span " << row << ", accumulator " << i;
      ASSERT_EQ(e[i], expected) << "A in registers, N " << N << ", swizzle span " << row << ", accumulator " << i;
    }
  });
}

TEST(Wgmma, EveryMajorAndSwizzleMode) {
  for (const u32 row : {8u, 16u, 32u, 64u}) {
    check_product<bf16, Major::k, Major::k, 64>(row);
    check_product<bf16, Major::mn, Major::k, 64>(row);
    check_product<f16, Major::k, Major::mn, 64>(row);
    check_product<f16, Major::mn, Major::mn, 64>(row);
  }
}

template <int... kEighths>
void check_every_n(std::integer_sequence<int, kEighths...>) {
  (check_product<bf16, Major::k, Major::k, 8 * (kEighths + 1)>(64), ...);
}

TEST(Wgmma, EveryN) { check_every_n(std::make_integer_sequence<int, 32>()); }

}  // namespace
}  // namespace iso::test
