// Rules of asynchronous copies, and what tensor copies move.
#include <cmath>

#include "support.h"

namespace iso::test {
namespace {

using namespace instr;  // NOLINT: kernels are written in its words
using emu::LaunchConfig;
using emu::TensorType;

constexpr u32 kBytes = 16384, kTile = 1024;  // tiles begin behind the barriers
const LaunchConfig kWarp{.threads = 32, .shared_bytes = kBytes};
const LaunchConfig kTwoWarps{.threads = 64, .shared_bytes = kBytes};

struct Bytes {
  alignas(1024) SharedArray<u8, kBytes> data;
};
u32 base() { return smem_u32(&shared_storage<Bytes>()); }

void make_barrier() {
  if (tid_x() == 0) {
    mbarrier_init(base(), 1);
    fence_mbarrier_init_release_cluster();
  }
  bar_sync(0, ntid_x());
}

struct Matrix {
  static constexpr u32 kRows = 32, kColumns = 64;
  std::vector<float> values = std::vector<float>(kRows * kColumns);
  Matrix() {
    for (std::size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i);
  }
  TensorMap map(u32 box_rows = 8, u32 box_columns = 32) const {
    return tensor_map_2d(values.data(), TensorType::f32, kRows, kColumns, box_rows, box_columns, emu::Swizzle::none);
  }
  std::function<void(Memory&)> fill() const {
    return [this](Memory& m) { m.add(values, "matrix"); };
  }
};

void load_box(const TensorMap& map, i32 column, i32 row, bool wait) {
  make_barrier();
  if (tid_x() == 0) {
    mbarrier_arrive_expect_tx(base(), 8 * 32 * 4);
    cp_async_bulk_tensor_2d_shared_global(base() + kTile, &map, base(), column, row);
  }
  if (wait) mbarrier_wait_parity(base(), 0);
}

TEST(ErrorsRaised, ReadInFlight) {
  const Matrix matrix;
  const TensorMap map = matrix.map();
  // The wait passes at once: its parity is that of the phase before. The copy may have landed by then: a race.
  bool seen = false;
  for (u64 seed = 1; seed <= kSeeds; seed++) {
    Memory memory;
    matrix.fill()(memory);
    LaunchConfig config = kWarp;
    config.seed = seed;
    const auto result = emu::launch(config, memory.get(), [&] {
      load_box(map, 0, 0, false);
      mbarrier_wait_parity(base(), 1);
      if (tid_x() == 0) ld_shared_f32(base() + kTile);
    });
    ASSERT_FALSE(result) << with_seed(seed);
    seen = seen || result.error().id() == errors::ReadInFlight::kId;
    expect_mentions(result.error().message(), {"ld.shared", "rules_copy_test.cpp:"});
  }
  EXPECT_TRUE(seen) << "in every order of " << kSeeds << " the copy landed at once";
  expect_silent(
      kWarp,
      [&] {
        load_box(map, 32, 8, true);
        EXPECT_EQ(ld_shared_f32(base() + kTile + 4 * laneid()), static_cast<float>(8 * 64 + 32 + laneid()));
      },
      matrix.fill());
}

TEST(ErrorsRaised, ProxyFenceMissing) {
  Matrix matrix;
  const TensorMap map = matrix.map();
  const auto store = [&](bool fence_at_writer, bool fence_at_issuer) {
    for (u32 i = tid_x(); i < 256; i += ntid_x()) st_shared_f32(base() + kTile + 4 * i, 1.0f);
    if (fence_at_writer) fence_proxy_async_shared_cta();
    bar_sync(0, ntid_x());
    if (tid_x() == 0) {
      if (fence_at_issuer) fence_proxy_async();
      cp_async_bulk_tensor_2d_global_shared(&map, base() + kTile, 0, 0);
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group<0>();
    }
  };
  expect_mentions(expect_fault<errors::ProxyFenceMissing>(
                      kTwoWarps, [&] { store(false, false); }, matrix.fill()),
                  {"store", "rules_copy_test.cpp:", "fence.proxy.async"});
  expect_silent(
      kTwoWarps, [&] { store(true, false); }, matrix.fill());
  expect_silent(
      kTwoWarps, [&] { store(false, true); }, matrix.fill());
  // A fence for global memory does not help shared memory.
  expect_fault<errors::ProxyFenceMissing>(
      kTwoWarps,
      [&] {
        if (tid_x() == 0) {
          st_shared_f32(base() + kTile, 1.0f);
          fence_proxy_async_global();
          cp_async_bulk_global_shared(matrix.values.data(), base() + kTile, 16);
        }
      },
      matrix.fill());
}

TEST(Copies, GlobalMemoryHasAProxyFenceOfItsOwn) {
  Matrix matrix;
  const auto kernel = [&](bool fence) {
    make_barrier();
    if (tid_x() == 0) {
      st_global_f32(matrix.values.data(), 5.0f);
      if (fence) fence_proxy_async_global();
      mbarrier_arrive_expect_tx(base(), 64);
      cp_async_bulk_shared_global(base() + kTile, matrix.values.data(), 64, base());
    }
    mbarrier_wait_parity(base(), 0);
    EXPECT_EQ(ld_shared_f32(base() + kTile), 5.0f);
  };
  expect_silent(
      kWarp, [&] { kernel(true); }, matrix.fill());
  expect_fault<errors::ProxyFenceMissing>(
      kWarp, [&] { kernel(false); }, matrix.fill());
}

TEST(Copies, TheAsyncProxyNeedsAFenceBetweenCtas) {
  Matrix matrix;
  std::vector<u32> flag(1);
  const auto kernel = [&](bool fence) {
    make_barrier();
    if (tid_x() != 0) return;
    if (ctaid_x() == 0) {
      for (u32 i = 0; i < 16; i++) st_shared_f32(base() + kTile + 4 * i, 3.0f);
      fence_proxy_async_shared_cta();
      cp_async_bulk_global_shared(matrix.values.data(), base() + kTile, 64);
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group<0>();
      st_release_gpu_global_u32(flag.data(), 1);
    } else {
      while (ld_acquire_gpu_global_u32(flag.data()) == 0) {}
      if (fence) fence_proxy_async_global();
      mbarrier_arrive_expect_tx(base(), 64);
      cp_async_bulk_shared_global(base() + kTile, matrix.values.data(), 64, base());
      mbarrier_wait_parity(base(), 0);
      EXPECT_EQ(ld_shared_f32(base() + kTile), 3.0f);
    }
  };
  const auto fill = [&](Memory& m) {
    flag[0] = 0;
    m.add(matrix.values, "matrix");
    m.add(flag, "flag");
  };
  LaunchConfig config = kWarp;
  config.grid = {2, 1, 1};
  expect_silent(
      config, [&] { kernel(true); }, fill);
  expect_fault<errors::ProxyFenceMissing>(
      config, [&] { kernel(false); }, fill);
  config.rules.async_proxy_across_ctas = false;
  expect_silent(
      config, [&] { kernel(false); }, fill);
}

TEST(ErrorsRaised, TensorMapInvalid) {
  const Matrix matrix;
  const TensorMap map = matrix.map(), never_encoded{};
  expect_mentions(expect_fault<errors::TensorMapInvalid>(
                      kWarp,
                      [&] {
                        make_barrier();
                        cp_async_bulk_tensor_3d_shared_global(base() + kTile, &map, base(), 0, 0, 0);
                      },
                      matrix.fill()),
                  {"rank 2", "3"});
  expect_fault<errors::TensorMapInvalid>(kWarp, [&] {
    make_barrier();
    cp_async_bulk_tensor_1d_shared_global(base() + kTile, &never_encoded, base(), 0);
  });
}

TEST(ErrorsRaised, BulkCopyInvalid) {
  Matrix matrix;
  const TensorMap map = matrix.map();
  // An H200 raises "illegal instruction" for start coordinates that are no multiple of 16 bytes, in range or out of it.
  for (const i32 column : {1, 2, 3, -2, 65})
    expect_mentions(expect_fault<errors::BulkCopyInvalid>(
                        kWarp, [&] { load_box(map, column, 0, true); }, matrix.fill()),
                    {"innermost start coordinate"});
  for (const i32 column : {0, 4, 32, -4, -32, 64})
    expect_silent(
        kWarp, [&] { load_box(map, column, 0, true); }, matrix.fill());
  LaunchConfig lenient = kWarp;
  lenient.rules.tma_start_16_bytes = false;
  expect_silent(
      lenient, [&] { load_box(map, 1, 0, true); }, matrix.fill());
  expect_fault<errors::BulkCopyInvalid>(
      kWarp, [&] { cp_async_bulk_tensor_2d_global_shared(&map, base() + kTile, 1, 0); }, matrix.fill());

  const float* in = matrix.values.data();
  const auto bulk = [&](u32 offset, u32 bytes, u16 mask) {
    return [=] {
      make_barrier();
      if (mask)
        cp_async_bulk_shared_global_multicast(base() + kTile, in + offset, bytes, base(), mask);
      else
        cp_async_bulk_shared_global(base() + kTile, in + offset, bytes, base());
    };
  };
  expect_fault<errors::BulkCopyInvalid>(kWarp, bulk(0, 20, 0), matrix.fill());
  expect_fault<errors::BulkCopyInvalid>(kWarp, bulk(1, 16, 0), matrix.fill());
  expect_fault<errors::BulkCopyInvalid>(kWarp, bulk(0, 16, 2), matrix.fill());
  expect_fault<errors::Misaligned>(
      kWarp,
      [&] {
        make_barrier();
        cp_async_bulk_tensor_2d_shared_global(base() + kTile + 64, &map, base(), 0, 0);
      },
      matrix.fill());
}

TEST(ErrorsRaised, ExitInFlight) {
  Matrix matrix;
  const TensorMap map = matrix.map();
  const auto store = [&](bool commit, bool wait) {
    for (u32 i = tid_x(); i < 256; i += 32) st_shared_f32(base() + kTile + 4 * i, 1.0f);
    fence_proxy_async();
    bar_sync(0, 32);
    if (tid_x() == 0) {
      cp_async_bulk_tensor_2d_global_shared(&map, base() + kTile, 0, 0);
      if (commit) cp_async_bulk_commit_group();
      if (wait) cp_async_bulk_wait_group_read<0>();
    }
  };
  expect_fault<errors::ExitInFlight>(
      kWarp, [&] { store(false, false); }, matrix.fill());
  expect_mentions(expect_fault<errors::ExitInFlight>(
                      kWarp, [&] { store(true, false); }, matrix.fill()),
                  {"bulk store", "rules_copy_test.cpp:", "thread 0"});
  expect_silent(
      kWarp, [&] { store(true, true); }, matrix.fill());
}

TEST(Copies, BulkReductionsOfSeveralCtasAddUp) {
  std::vector<float> sum(64);
  expect_silent(
      {.grid = {5, 1, 1}, .threads = 32, .shared_bytes = kBytes, .resident_ctas = 3},
      [&] {
        for (u32 i = tid_x(); i < 64; i += 32) st_shared_f32(base() + 4 * i, static_cast<float>(ctaid_x() + 1));
        fence_proxy_async();
        bar_sync(0, 32);
        if (tid_x() == 0) {
          cp_reduce_async_bulk_global_shared_add_f32(sum.data(), base(), 256);
          cp_async_bulk_commit_group();
          cp_async_bulk_wait_group<0>();
        }
      },
      [&](Memory& m) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        m.add(sum, "sum");
      });
  EXPECT_EQ(sum, std::vector<float>(64, 15.0f));
}

TEST(Copies, SharedMemoryOfAPeerIsFilled) {
  const auto kernel = [] {
    if (tid_x() == 0) {
      mbarrier_init(base(), 1);
      fence_mbarrier_init_release_cluster();
    }
    const u32 rank = cluster_ctarank();
    st_shared_b32(base() + kTile + 4 * tid_x(), 100 * rank + tid_x());
    fence_proxy_async();
    barrier_cluster_arrive();
    barrier_cluster_wait();
    if (tid_x() == 0) {
      mbarrier_arrive_expect_tx(base(), 128);
      const u32 peer = 1 - rank;
      cp_async_bulk_shared_cluster_shared(mapa_shared_cluster(base() + 2 * kTile, peer), base() + kTile, 128,
                                          mapa_shared_cluster(base(), peer));
    }
    mbarrier_wait_parity(base(), 0);
    EXPECT_EQ(ld_shared_b32(base() + 2 * kTile + 4 * tid_x()), 100 * (1 - rank) + tid_x());
    barrier_cluster_arrive();
    barrier_cluster_wait();
  };
  expect_silent({.grid = {2, 1, 1}, .cluster = {2, 1, 1}, .threads = 32, .shared_bytes = kBytes}, kernel);
}

// --- tensor maps -----------------------------------------------------------------------------------------------------

// The words that cuTensorMapEncodeTiled of driver 13.0 gives for these arguments.
TEST(TensorMaps, BitsAreThoseOfTheDriver) {
  emu::TensorMapFields f;
  f.address = 0x7f1234567890;
  f.type = TensorType::bf16;
  f.rank = 5;
  for (u64& size : f.size) size = 256;
  f.stride[0] = 2;
  f.stride[1] = 1024;
  f.stride[2] = 262144;
  f.stride[3] = 67108864;
  f.stride[4] = 17179869184;
  for (u32& box : f.box) box = 2;
  f.box[0] = f.box[1] = 8;
  for (u32& stride : f.element_stride) stride = 1;
  u64 bits[16];
  ASSERT_EQ(emu::encode(f, bits), "");
  const u64 expected[16] = {0x00007f1234567890, 0x0000004000000540, 0x0040000000004000, 0x0000000040000000,
                            0x000000ff000000ff, 0x000000ff000000ff, 0x07000000000000ff, 0x0000000001010107,
                            0x0000000000000400, 0x0000000000000010};
  for (int i = 0; i < 16; i++) EXPECT_EQ(bits[i], expected[i]) << "word " << i;

  f.stride[2] = 0xFEDCBA9870;
  ASSERT_EQ(emu::encode(f, bits), "");
  EXPECT_EQ(bits[2], 0x00400000edcba987u);
  EXPECT_EQ(bits[3], 0x000000f040000000u);

  const TensorMap matrix =
      tensor_map_2d(reinterpret_cast<void*>(0x7f0000000000), TensorType::bf16, 256, 256, 64, 64, emu::Swizzle::b128);
  EXPECT_EQ(matrix.bits[1] & 0xffffffff, 0x6510u);
  EXPECT_EQ(matrix.bits[9], 0x400u);
}

TEST(TensorMaps, EveryRankComesBackFromItsBits) {
  for (u32 rank = 1; rank <= 5; rank++)
    for (const TensorType type : {TensorType::bf16, TensorType::f16, TensorType::f32, TensorType::s32, TensorType::f64}) {
      emu::TensorMapFields f, g;
      f.address = 0x7f0000001000;
      f.type = type;
      f.rank = rank;
      f.stride[0] = static_cast<u64>(emu::element_size(type));
      for (u32 d = 0; d < rank; d++) {
        f.size[d] = 100 + 7 * d;
        f.box[d] = d == 0 ? 8 : 1 + d;
        f.element_stride[d] = 1;
        if (d > 0) f.stride[d] = 4096 * d;
      }
      u64 bits[16];
      ASSERT_EQ(emu::encode(f, bits), "");
      ASSERT_EQ(emu::decode(bits, g), "");
      EXPECT_EQ(g.rank, rank);
      EXPECT_EQ(g.type, type);
      for (u32 d = 0; d < rank; d++) {
        EXPECT_EQ(g.size[d], f.size[d]);
        EXPECT_EQ(g.stride[d], f.stride[d]);
        EXPECT_EQ(g.box[d], f.box[d]);
      }
    }
}

TEST(TensorMaps, WhatTheDriverRefusesIsRefused) {
  const auto refused = [](const std::function<void(emu::TensorMapFields&)>& change) {
    emu::TensorMapFields f;
    f.address = 0x1000;
    f.rank = 2;
    f.size[0] = f.size[1] = 64;
    f.stride[0] = 2;
    f.stride[1] = 128;
    f.box[0] = f.box[1] = 64;
    f.element_stride[0] = f.element_stride[1] = 1;
    u64 bits[16];
    EXPECT_EQ(emu::encode(f, bits), "");
    change(f);
    return !emu::encode(f, bits).empty();
  };
  EXPECT_TRUE(refused([](auto& f) { f.address = 0x1008; }));
  EXPECT_TRUE(refused([](auto& f) { f.rank = 6; }));
  EXPECT_TRUE(refused([](auto& f) { f.stride[1] = 1032; }));
  EXPECT_TRUE(refused([](auto& f) { f.stride[1] = u64{1} << 40; }));
  EXPECT_TRUE(refused([](auto& f) { f.size[1] = 0; }));
  EXPECT_TRUE(refused([](auto& f) { f.box[0] = 7; }));
  EXPECT_TRUE(refused([](auto& f) { f.box[0] = 512; }));
  EXPECT_TRUE(refused([](auto& f) { f.swizzle = emu::Swizzle::b64; }));
  EXPECT_TRUE(refused([](auto& f) { f.type = TensorType::f64, f.box[0] = f.box[1] = 256; }));
}

// A rank-3 box that sticks out of the tensor on all sides: zeros outside, stores and reductions clipped.
TEST(Copies, BoxesAreFilledAndClippedAtTheTensorsEdges) {
  constexpr u32 kX = 12, kY = 5, kZ = 3, kBoxX = 8, kBoxY = 4, kBoxZ = 2, kCount = kBoxX * kBoxY * kBoxZ;
  for (const i32 x : {-4, 0, 4, 8, 12})
    for (const i32 y : {-3, 0, 2, 5})
      for (const i32 z : {-1, 1, 2}) {
        std::vector<float> in(kX * kY * kZ), out(in.size(), -1.0f), sum(in.size(), 0.5f);
        for (std::size_t i = 0; i < in.size(); i++) in[i] = static_cast<float>(i + 1);
        const auto map = [&](const std::vector<float>& v) {
          emu::TensorMapFields f;
          f.address = reinterpret_cast<u64>(v.data());
          f.type = TensorType::f32;
          f.rank = 3;
          const u32 sizes[] = {kX, kY, kZ}, boxes[] = {kBoxX, kBoxY, kBoxZ};
          const u64 strides[] = {4, 4 * kX, 4 * kX * kY};
          for (u32 d = 0; d < 3; d++) {
            f.size[d] = sizes[d];
            f.box[d] = boxes[d];
            f.stride[d] = strides[d];
            f.element_stride[d] = 1;
          }
          TensorMap m;
          EXPECT_EQ(emu::encode(f, m.bits), "");
          return m;
        };
        const TensorMap load = map(in), store = map(out), add = map(sum);
        Memory memory;
        memory.add(in, "in");
        memory.add(out, "out");
        memory.add(sum, "sum");
        const auto inside = [&](i32 i, i32 j, i32 k) {
          return i >= 0 && i < static_cast<i32>(kX) && j >= 0 && j < static_cast<i32>(kY) && k >= 0 &&
                 k < static_cast<i32>(kZ);
        };
        const auto index = [&](i32 i, i32 j, i32 k) {
          return static_cast<std::size_t>(i + static_cast<i32>(kX) * (j + static_cast<i32>(kY) * k));
        };
        const auto result = emu::launch(kWarp, memory.get(), [&] {
          make_barrier();
          if (tid_x() == 0) {
            mbarrier_arrive_expect_tx(base(), kCount * 4);
            cp_async_bulk_tensor_3d_shared_global(base() + kTile, &load, base(), x, y, z);
          }
          mbarrier_wait_parity(base(), 0);
          for (u32 i = tid_x(); i < kCount; i += 32) {
            const i32 a = x + static_cast<i32>(i % kBoxX), b = y + static_cast<i32>(i / kBoxX % kBoxY),
                      c = z + static_cast<i32>(i / (kBoxX * kBoxY));
            EXPECT_EQ(ld_shared_f32(base() + kTile + 4 * i), inside(a, b, c) ? in[index(a, b, c)] : 0.0f);
          }
          bar_sync(0, 32);
          if (tid_x() == 0) {
            cp_async_bulk_tensor_3d_global_shared(&store, base() + kTile, x, y, z);
            cp_reduce_async_bulk_tensor_3d_global_shared_add(&add, base() + kTile, x, y, z);
            cp_async_bulk_commit_group();
            cp_async_bulk_wait_group<0>();
          }
        });
        ASSERT_TRUE(result) << result.error().message();
        for (i32 k = 0; k < static_cast<i32>(kZ); k++)
          for (i32 j = 0; j < static_cast<i32>(kY); j++)
            for (i32 i = 0; i < static_cast<i32>(kX); i++) {
              const bool in_box = i >= x && i < x + static_cast<i32>(kBoxX) && j >= y && j < y + static_cast<i32>(kBoxY) &&
                                  k >= z && k < z + static_cast<i32>(kBoxZ);
              const std::size_t n = index(i, j, k);
              ASSERT_EQ(out[n], in_box ? in[n] : -1.0f);
              ASSERT_EQ(sum[n], in_box ? in[n] + 0.5f : 0.5f);
            }
      }
}

}  // namespace
}  // namespace iso::test
