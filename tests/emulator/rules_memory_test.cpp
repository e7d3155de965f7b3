// Rules of ordinary memory accesses: each, broken, is reported; each control is silent.
#include "support.h"

namespace iso::test {
namespace {

using namespace instr;  // NOLINT: kernels are written in its words
using emu::LaunchConfig;

constexpr u32 kBytes = 8192;
const LaunchConfig kWarp{.threads = 32, .shared_bytes = kBytes};
const LaunchConfig kTwoWarps{.threads = 64, .shared_bytes = kBytes};

struct Bytes {
  SharedArray<u8, kBytes> data;
};
u32 base() { return smem_u32(&shared_storage<Bytes>()); }

TEST(ErrorsRaised, SharedOutOfBounds) {
  const std::string message = expect_fault<errors::SharedOutOfBounds>(kWarp, [] { st_shared_b32(base() + kBytes, 1); });
  expect_mentions(message, {"rules_memory_test.cpp:", "st.shared", "byte 8192", "warp 0, lane", "CTA (0,0,0)"});
  expect_fault<errors::SharedOutOfBounds>(kWarp, [] { ld_shared_b32(0); });
  struct Large {
    SharedArray<u8, kBytes + 1> data;
  };
  expect_fault<errors::SharedOutOfBounds>(kWarp, [] { shared_storage<Large>(); });
  expect_silent(kWarp, [] {
    if (tid_x() == 0) st_shared_b32(base() + kBytes - 4, 1);
  });
}

TEST(ErrorsRaised, Misaligned) {
  expect_mentions(expect_fault<errors::Misaligned>(kWarp, [] { st_shared_b32(base() + 2, 1); }), {"byte 2", "4"});
  expect_fault<errors::Misaligned>(kWarp, [] { ld_shared_v4_b32(base() + 8); });
  std::vector<u32> out(8);
  expect_fault<errors::Misaligned>(
      kWarp, [&] { st_global_v4_b32(out.data() + 1, {}); }, [&](Memory& m) { m.add(out, "out"); });
  expect_silent(kWarp, [] {
    if (tid_x() == 0) st_shared_v4_b32(base() + 16, {});
  });
}

TEST(ErrorsRaised, UninitialisedRead) {
  expect_mentions(expect_fault<errors::UninitialisedRead>(kWarp, [] { ld_shared_b32(base() + 4 * tid_x()); }),
                  {"ld.shared"});
  std::vector<u32> out(32);
  const auto uninitialised = [&](Memory& m) { m.add(out, "out", emu::Contents::uninitialised); };
  expect_mentions(expect_fault<errors::UninitialisedRead>(
                      kWarp, [&] { ld_global_b32(out.data() + tid_x()); }, uninitialised),
                  {"`out`"});
  expect_silent(
      kWarp,
      [&] {
        st_global_b32(out.data() + tid_x(), 1);
        ld_global_b32(out.data() + tid_x());
      },
      uninitialised);
}

TEST(ErrorsRaised, GlobalOutOfBounds) {
  std::vector<u32> out(32);
  const auto fill = [&](Memory& m) { m.add(out, "out"); };
  expect_mentions(expect_fault<errors::GlobalOutOfBounds>(
                      kWarp, [&] { st_global_b32(out.data() + 32 + tid_x(), 1); }, fill),
                  {"`out`", "128"});
  expect_silent(
      kWarp, [&] { st_global_b32(out.data() + tid_x(), 1); }, fill);
}

// --- order -----------------------------------------------------------------------------------------------------------

void exchange_between_lanes(bool synchronise) {
  st_shared_b32(base() + 4 * tid_x(), tid_x());
  if (synchronise) bar_warp_sync();
  ld_shared_b32(base() + 4 * (tid_x() ^ 1));
}

TEST(ErrorsRaised, RaceReadAfterWrite) {
  const auto race = [] {
    if (tid_x() < 32) {
      st_shared_b32(base() + 4 * tid_x(), 1);
      bar_arrive(1, 64);
    } else {
      bar_sync(1, 64);
    }
    bar_warp_sync();
    if (tid_x() >= 32) st_shared_b32(base() + 4 * (tid_x() - 32), 2);  // ordered: after the barrier
    if (tid_x() < 32) ld_shared_b32(base() + 4 * tid_x());             // not ordered after that
  };
  // Either side may come second.
  for (u64 seed = 1; seed <= kSeeds; seed++) {
    Memory memory;
    LaunchConfig config = kTwoWarps;
    config.seed = seed;
    const auto result = emu::launch(config, memory.get(), race);
    ASSERT_FALSE(result) << with_seed(seed);
    EXPECT_TRUE(result.error().id() == errors::RaceReadAfterWrite::kId ||
                result.error().id() == errors::RaceWriteAfterRead::kId)
        << result.error().message();
  }
  expect_silent(kWarp, [] { exchange_between_lanes(true); });

  // Through global memory, whose contents the host has given: no chance of an uninitialised read.
  std::vector<u32> flag(1), data(32);
  const auto fill = [&](Memory& m) {
    flag[0] = 0;
    m.add(flag, "flag");
    m.add(data, "data");
  };
  const auto publish = [&](bool release, bool acquire) {
    if (tid_x() == 0) {
      st_global_b32(data.data(), 1);
      if (release)
        st_release_gpu_global_u32(flag.data(), 1);
      else
        st_relaxed_gpu_global_u32(flag.data(), 1);
    } else if (tid_x() == 32) {
      while ((acquire ? ld_acquire_gpu_global_u32(flag.data()) : ld_relaxed_gpu_global_u32(flag.data())) != 1) {}
      ld_global_b32(data.data());
    }
  };
  const std::string message = expect_fault<errors::RaceReadAfterWrite>(
      kTwoWarps, [&] { publish(false, true); }, fill);
  expect_mentions(message, {"`data`", "ld.global", "thread 32", "thread 0 (warp 0, lane 0)"});
  expect_fault<errors::RaceReadAfterWrite>(
      kTwoWarps, [&] { publish(true, false); }, fill);
  expect_silent(
      kTwoWarps, [&] { publish(true, true); }, fill);
}

TEST(MemoryOrder, FencesMakeRelaxedAtomicsPublish) {
  std::vector<u32> flag(1), data(1);
  const auto fill = [&](Memory& m) {
    flag[0] = 0;
    m.add(flag, "flag");
    m.add(data, "data");
  };
  const auto publish = [&](bool first, bool second) {
    if (tid_x() == 0) {
      st_global_b32(data.data(), 1);
      if (first) fence_acq_rel_gpu();
      atom_relaxed_gpu_global_add_u32(flag.data(), 1);
    } else if (tid_x() == 32) {
      while (ld_relaxed_gpu_global_u32(flag.data()) != 1) {}
      if (second) fence_acq_rel_gpu();
      ld_global_b32(data.data());
    }
  };
  expect_silent(
      kTwoWarps, [&] { publish(true, true); }, fill);
  expect_fault<errors::RaceReadAfterWrite>(
      kTwoWarps, [&] { publish(false, true); }, fill);
  expect_fault<errors::RaceReadAfterWrite>(
      kTwoWarps, [&] { publish(true, false); }, fill);
}

TEST(ErrorsRaised, RaceWriteAfterRead) {
  std::vector<u32> data(32);
  const auto fill = [&](Memory& m) { m.add(data, "data"); };
  // bar.arrive orders one way only: the arriving warp may not touch what the waiting warp reads.
  const auto kernel = [&](bool back) {
    if (tid_x() < 32) {
      bar_arrive(1, 64);
      if (back) bar_sync(2, 64);
      st_global_b32(data.data() + tid_x(), 1);
    } else {
      ld_global_b32(data.data() + tid_x() - 32);
      bar_sync(1, 64);
      if (back) bar_arrive(2, 64);
    }
  };
  bool seen = false;
  for (u64 seed = 1; seed <= kSeeds; seed++) {
    Memory memory;
    fill(memory);
    LaunchConfig config = kTwoWarps;
    config.seed = seed;
    const auto result = emu::launch(config, memory.get(), [&] { kernel(false); });
    ASSERT_FALSE(result) << with_seed(seed);
    seen = seen || result.error().id() == errors::RaceWriteAfterRead::kId;
  }
  EXPECT_TRUE(seen) << "in no order of " << kSeeds << " did the read come first";
  expect_silent(
      kTwoWarps, [&] { kernel(true); }, fill);
}

TEST(ErrorsRaised, RaceWriteAfterWrite) {
  std::vector<u32> data(1);
  const auto fill = [&](Memory& m) { m.add(data, "data"); };
  const LaunchConfig two_ctas{.grid = {2, 1, 1}, .threads = 32};
  const std::string message = expect_fault<errors::RaceWriteAfterWrite>(
      two_ctas,
      [&] {
        if (tid_x() == 0) st_global_b32(data.data(), ctaid_x());
      },
      fill);
  expect_mentions(message, {"CTA (1,0,0)", "CTA (0,0,0)"});
  expect_silent(
      two_ctas,
      [&] {
        if (tid_x() == 0) atom_relaxed_gpu_global_add_u32(data.data(), 1);
      },
      fill);
}

TEST(MemoryOrder, OrdinaryAccessToAnAtomicIsARace) {
  std::vector<u32> data(1);
  const auto fill = [&](Memory& m) { m.add(data, "data"); };
  const LaunchConfig two_ctas{.grid = {2, 1, 1}, .threads = 32};
  for (u64 seed = 1; seed <= kSeeds; seed++) {
    Memory memory;
    fill(memory);
    LaunchConfig config = two_ctas;
    config.seed = seed;
    EXPECT_FALSE(emu::launch(config, memory.get(), [&] {
      if (tid_x() == 0 && ctaid_x() == 0) red_release_gpu_global_add_u32(data.data(), 1);
      if (tid_x() == 0 && ctaid_x() == 1) ld_global_b32(data.data());
    })) << with_seed(seed);
  }
}

TEST(MemoryOrder, NeighbouringHalvesOfAWordAreApart) {
  expect_silent(kWarp, [] {
    st_shared_b16(base() + 2 * tid_x(), static_cast<u16>(tid_x()));
    EXPECT_EQ(ld_shared_b16(base() + 2 * tid_x()), tid_x());
  });
}

TEST(MemoryOrder, APreviousGridNeedsGriddepcontrolWait) {
  std::vector<u32> data(1);
  for (const bool waits : {false, true}) {
    Memory memory;
    memory.add(data, "data", emu::Contents::uninitialised);
    LaunchConfig config = kWarp;
    ASSERT_TRUE(emu::launch(config, memory.get(), [&] {
      if (tid_x() == 0) st_global_b32(data.data(), 7);
      griddepcontrol_launch_dependents();
    }));
    config.programmatic = true;
    const auto result = emu::launch(config, memory.get(), [&] {
      if (waits) griddepcontrol_wait();
      const u32 value = ld_global_b32(data.data());
      EXPECT_EQ(value, 7u);
    });
    if (waits)
      EXPECT_TRUE(result) << result.error().message();
    else
      expect_mentions(result ? "" : result.error().message(), {"previous grid", "griddepcontrol.wait"});
    config.programmatic = false;
    EXPECT_TRUE(emu::launch(config, memory.get(), [&] { ld_global_b32(data.data()); }));
  }
}

TEST(MemoryOrder, MatricesComeAndGoAsTheManualSays) {
  for (const bool transposed : {false, true})
    expect_silent(kWarp, [&] {
      // Row r, column c of matrix m holds 64 m + 8 r + c.
      const u32 lane = laneid();
      for (u32 i = lane; i < 256; i += 32) st_shared_b16(base() + 2 * i, static_cast<u16>(i));
      bar_warp_sync();
      u32 r[4];
      if (transposed)
        ldmatrix_x4_trans(r, base() + 16 * lane);
      else
        ldmatrix_x4(r, base() + 16 * lane);
      for (u32 m = 0; m < 4; m++)
        for (u32 half = 0; half < 2; half++) {
          const u32 a = lane / 4, b = 2 * (lane % 4) + half;
          EXPECT_EQ(r[m] >> 16 * half & 0xffff, 64 * m + (transposed ? 8 * b + a : 8 * a + b));
        }
      bar_warp_sync();
      if (transposed)
        stmatrix_x4_trans(base() + 1024 + 16 * lane, r);
      else
        stmatrix_x4(base() + 1024 + 16 * lane, r);
      bar_warp_sync();
      for (u32 i = lane; i < 256; i += 32) EXPECT_EQ(ld_shared_b16(base() + 1024 + 2 * i), i);
    });
}

}  // namespace
}  // namespace iso::test
