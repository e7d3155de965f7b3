// Rules of barriers, warps, clusters and launches.
#include "support.h"

namespace iso::test {
namespace {

using namespace instr;  // NOLINT: kernels are written in its words
using emu::LaunchConfig;

constexpr u32 kBytes = 8192;
const LaunchConfig kWarp{.threads = 32, .shared_bytes = kBytes};
const LaunchConfig kTwoWarps{.threads = 64, .shared_bytes = kBytes};
const LaunchConfig kCluster{.grid = {2, 1, 1}, .cluster = {2, 1, 1}, .threads = 32, .shared_bytes = kBytes};

struct Bytes {
  SharedArray<u8, kBytes> data;
};
u32 base() { return smem_u32(&shared_storage<Bytes>()); }

// Barrier at byte 0 with this count, known to all threads and published.
void make_barrier(u32 count) {
  if (tid_x() == 0) {
    mbarrier_init(base(), count);
    fence_mbarrier_init_release_cluster();
  }
  bar_sync(0, ntid_x());
}

TEST(ErrorsRaised, BarrierOverwritten) {
  expect_fault<errors::BarrierOverwritten>(kWarp, [] {
    make_barrier(1);
    if (tid_x() == 0) st_shared_b32(base() + 4, 0);
  });
  expect_silent(kWarp, [] {
    make_barrier(1);
    if (tid_x() == 0) {
      mbarrier_inval(base());
      st_shared_b32(base() + 4, 0);
    }
  });
}

TEST(ErrorsRaised, MbarrierMissing) {
  expect_mentions(expect_fault<errors::MbarrierMissing>(kWarp, [] { mbarrier_wait_parity(base() + 64, 0); }),
                  {"byte 64", "rules_barrier_test.cpp"});
  expect_fault<errors::MbarrierMissing>(kWarp, [] {
    make_barrier(1);
    if (tid_x() == 0) {
      mbarrier_inval(base());
      mbarrier_arrive(base());
    }
  });
}

TEST(ErrorsRaised, MbarrierInitUnordered) {
  // Another warp finds the barrier only if the initialisation happened to come first; wait for that by the clock.
  std::vector<u32> flag(1);
  expect_fault<errors::MbarrierInitUnordered>(
      kTwoWarps,
      [&] {
        if (tid_x() == 0) {
          mbarrier_init(base(), 1);
          st_relaxed_gpu_global_u32(flag.data(), 1);
        }
        if (tid_x() == 32) {
          while (ld_relaxed_gpu_global_u32(flag.data()) == 0) {}
          mbarrier_arrive(base());
        }
      },
      [&](Memory& m) {
        flag[0] = 0;
        m.add(flag, "flag");
      });
  expect_silent(kTwoWarps, [] {
    make_barrier(1);
    if (tid_x() == 32) mbarrier_arrive(base());
    mbarrier_wait_parity(base(), 0);
  });
}

TEST(ErrorsRaised, MbarrierInitUnpublished) {
  std::vector<u32> data(64);
  const auto fill = [&](Memory& m) { m.add(data, "data"); };
  const auto kernel = [&](bool fence) {
    if (tid_x() == 0) {
      mbarrier_init(base(), 1);
      if (fence) fence_mbarrier_init_release_cluster();
      mbarrier_arrive_expect_tx(base(), 256);
      cp_async_bulk_shared_global(base() + 128, data.data(), 256, base());
      mbarrier_wait_parity(base(), 0);
    }
  };
  expect_fault<errors::MbarrierInitUnpublished>(
      kWarp, [&] { kernel(false); }, fill);
  expect_silent(
      kWarp, [&] { kernel(true); }, fill);
}

TEST(ErrorsRaised, MbarrierInitInvalid) {
  expect_fault<errors::MbarrierInitInvalid>(kWarp, [] { mbarrier_init(base() + 8 * tid_x(), 0); });
  expect_fault<errors::MbarrierInitInvalid>(kWarp, [] {
    make_barrier(1);
    if (tid_x() == 0) mbarrier_init(base(), 1);
  });
}

TEST(ErrorsRaised, MbarrierOverArrival) {
  expect_mentions(expect_fault<errors::MbarrierOverArrival>(kWarp,
                                                            [] {
                                                              make_barrier(2);
                                                              if (tid_x() == 0) mbarrier_arrive_count(base(), 3);
                                                            }),
                  {"count is 2"});
  // With bytes outstanding the phase stays; one more arrival is too many.
  expect_fault<errors::MbarrierOverArrival>(kWarp, [] {
    make_barrier(1);
    if (tid_x() == 0) {
      mbarrier_arrive_expect_tx(base(), 64);
      mbarrier_arrive(base());
    }
  });
}

void load_256_bytes(const u32* data, u32 expected) {
  make_barrier(1);
  if (tid_x() == 0) {
    mbarrier_arrive_expect_tx(base(), expected);
    cp_async_bulk_shared_global(base() + 128, data, 256, base());
  }
  mbarrier_wait_parity(base(), 0);
}

TEST(ErrorsRaised, MbarrierTransactionBytes) {
  std::vector<u32> data(64);
  const auto fill = [&](Memory& m) { m.add(data, "data"); };
  expect_fault<errors::MbarrierTransactionBytes>(
      kWarp, [&] { load_256_bytes(data.data(), 128); }, fill);
  expect_fault<errors::MbarrierTransactionBytes>(
      kWarp,
      [&] {
        make_barrier(2);
        if (tid_x() == 0) mbarrier_arrive_expect_tx(base(), 64);
      },
      fill);
  expect_silent(
      kWarp, [&] { load_256_bytes(data.data(), 256); }, fill);
}

TEST(ErrorsRaised, NamedBarrierMisuse) {
  expect_fault<errors::NamedBarrierMisuse>(kTwoWarps, [] { bar_sync(1, tid_x() < 32 ? 64 : 32); });
  expect_fault<errors::NamedBarrierMisuse>(kTwoWarps, [] { bar_sync(16, 64); });
  expect_fault<errors::NamedBarrierMisuse>(kTwoWarps, [] { bar_sync(1, 48); });
  expect_fault<errors::NamedBarrierMisuse>(kTwoWarps, [] { bar_arrive(1, 128); });
  expect_silent(kTwoWarps, [] {
    for (int round = 0; round < 3; round++) {
      if (tid_x() < 32)
        bar_arrive(1, 64);
      else
        bar_sync(1, 64);
      bar_sync(2, 64);
    }
  });
}

TEST(ErrorsRaised, WarpDivergence) {
  expect_fault<errors::WarpDivergence>(kWarp, [] { shfl_sync_bfly_f32(1.0f, tid_x() < 16 ? 1 : 2); });
  expect_fault<errors::WarpDivergence>(kWarp, [] {
    if (tid_x() < 16)
      bar_warp_sync();
    else
      elect_sync();
  });
  expect_silent(kWarp, [] {
    const u32 lane = laneid();
    EXPECT_EQ(shfl_sync_bfly_b32(lane, 5), lane ^ 5);
    EXPECT_EQ(shfl_sync_up_b32(lane, 3), lane < 3 ? lane : lane - 3);
    EXPECT_EQ(shfl_sync_down_b32(lane, 3), lane > 28 ? lane : lane + 3);
    EXPECT_EQ(shfl_sync_idx_b32(lane, (lane + 7) % 32), (lane + 7) % 32);
    EXPECT_EQ(vote_sync_ballot(lane % 2 == 1), 0xaaaaaaaau);
    EXPECT_EQ(elect_sync(), lane == 0);
  });
}

TEST(ErrorsRaised, Deadlock) {
  std::string message = expect_fault<errors::Deadlock>(kTwoWarps, [] {
    make_barrier(2);
    if (tid_x() == 0) mbarrier_arrive(base());
    mbarrier_wait_parity(base(), 0);
  });
  expect_mentions(message, {"threads 0-63 wait in mbarrier.try_wait.parity at rules_barrier_test.cpp:", "parity 0",
                            "1 of 2 arrivals missing"});
  message = expect_fault<errors::Deadlock>(kTwoWarps, [] {
    if (tid_x() < 32) bar_sync(3, 64);
  });
  expect_mentions(message, {"barrier 3, 32 of 64 threads have arrived", "threads 32-63 have finished"});
  // A loop that polls is a deadlock as well.
  expect_fault<errors::Deadlock>(kWarp, [] {
    make_barrier(1);
    while (!mbarrier_test_wait_parity(base(), 0)) {}
  });
  std::vector<u32> data(64);
  message = expect_fault<errors::Deadlock>(
      kWarp, [&] { load_256_bytes(data.data(), 512); }, [&](Memory& m) { m.add(data, "data"); });
  expect_mentions(message, {"256 of 512 bytes landed"});
}

TEST(Barriers, NamesOfTheHostAppearInReports) {
  LaunchConfig config = kWarp;
  config.barrier_names = {{0, "k_full[0]"}};
  expect_mentions(expect_fault<errors::Deadlock>(config,
                                                 [] {
                                                   make_barrier(1);
                                                   mbarrier_wait_parity(base(), 0);
                                                 }),
                  {"mbarrier k_full[0]"});
}

TEST(Barriers, ManyPhasesStayInOrder) {
  expect_silent(kTwoWarps, [] {
    make_barrier(1);
    if (tid_x() == 0) mbarrier_init(base() + 8, 1);
    bar_sync(0, 64);
    // A ring of one word between two threads.
    for (u32 n = 0; n < 5; n++) {
      if (tid_x() == 0) {
        mbarrier_wait_parity(base() + 8, (n & 1) ^ 1);
        st_shared_b32(base() + 64, n);
        mbarrier_arrive(base());
      } else if (tid_x() == 32) {
        mbarrier_wait_parity(base(), n & 1);
        EXPECT_EQ(ld_shared_b32(base() + 64), n);
        mbarrier_arrive(base() + 8);
      }
    }
  });
}

// --- registers -------------------------------------------------------------------------------------------------------

TEST(ErrorsRaised, RegisterCount) {
  const LaunchConfig config{.threads = 128, .registers = 128};
  expect_fault<errors::RegisterCount>(config, [] { setmaxnreg_dec<240>(); });
  expect_fault<errors::RegisterCount>(config, [] { setmaxnreg_inc<24>(); });
  expect_fault<errors::RegisterCount>(config, [] {
    if (tid_x() < 32)
      setmaxnreg_dec<40>();
    else
      setmaxnreg_dec<48>();
  });
}

// What an H200 does with 384 threads that start with 168 registers.
TEST(Registers, ThePoolHoldsOnlyWhatWasReleased) {
  const LaunchConfig config{.threads = 384};
  expect_silent(config, [] {
    if (tid_x() < 128)
      setmaxnreg_dec<24>();
    else
      setmaxnreg_inc<240>();
  });
  expect_mentions(expect_fault<errors::Deadlock>(config,
                                                 [] {
                                                   if (tid_x() < 128)
                                                     setmaxnreg_dec<32>();
                                                   else
                                                     setmaxnreg_inc<240>();
                                                 }),
                  {"setmaxnreg.inc", "240 registers per thread"});
}

// --- clusters --------------------------------------------------------------------------------------------------------

void cluster_sync() {
  barrier_cluster_arrive();
  barrier_cluster_wait();
}

TEST(ErrorsRaised, WrongSharedWindow) {
  expect_fault<errors::WrongSharedWindow>(kCluster, [] {
    cluster_sync();
    st_shared_b32(mapa_shared_cluster(base(), 1 - cluster_ctarank()), 1);
  });
  expect_fault<errors::WrongSharedWindow>(kCluster, [] { mapa_shared_cluster(base(), 2); });
}

TEST(ErrorsRaised, ClusterPeerAbsent) {
  const auto store = [] { st_shared_cluster_b32(mapa_shared_cluster(base() + 4 * tid_x(), 1), 1); };
  expect_fault<errors::ClusterPeerAbsent>(kCluster, [&] {
    if (cluster_ctarank() == 0) store();
  });
  expect_fault<errors::ClusterPeerAbsent>(kCluster, [&] {
    cluster_sync();
    if (cluster_ctarank() == 0) {
      for (int i = 0; i < 50; i++) bar_sync(0, 32);  // long enough for the other CTA to end
      store();
    }
  });
}

TEST(ErrorsRaised, ClusterExitEarly) {
  const auto kernel = [](bool last_barrier) {
    if (tid_x() == 0) {
      mbarrier_init(base(), 1);
      fence_mbarrier_init_release_cluster();
    }
    cluster_sync();
    // Each tells the other that its word is there; nobody waits for the second word.
    const u32 peer = 1 - cluster_ctarank();
    if (tid_x() == 0) {
      st_shared_cluster_b32(mapa_shared_cluster(base() + 64, peer), 5);
      mbarrier_arrive_cluster(mapa_shared_cluster(base(), peer));
      mbarrier_wait_parity(base(), 0);
      EXPECT_EQ(ld_shared_b32(base() + 64), 5u);
    }
    if (last_barrier) cluster_sync();
  };
  expect_silent(kCluster, [&] { kernel(true); });
  // The wait orders the peer's store and arrive before the end, so this is enough here.
  expect_silent(kCluster, [&] { kernel(false); });
  expect_fault<errors::ClusterExitEarly>(kCluster, [] {
    if (tid_x() == 0) {
      mbarrier_init(base(), 2);
      fence_mbarrier_init_release_cluster();
    }
    cluster_sync();
    if (tid_x() == 0) mbarrier_arrive_cluster(mapa_shared_cluster(base(), 1 - cluster_ctarank()));
    for (int i = 0; i < 50; i++) bar_sync(0, 32);  // both have arrived by now, but neither knows
  });
}

TEST(ErrorsRaised, ClusterBarrierMisuse) {
  expect_fault<errors::ClusterBarrierMisuse>(kCluster, [] { barrier_cluster_wait(); });
  expect_fault<errors::ClusterBarrierMisuse>(kCluster, [] {
    barrier_cluster_arrive();
    barrier_cluster_arrive();
  });
  expect_silent(kCluster, [] {
    for (int i = 0; i < 3; i++) cluster_sync();
  });
}

TEST(Clusters, RelaxedArrivalOrdersNothing) {
  const auto kernel = [](bool relaxed) {
    cluster_sync();
    if (cluster_ctarank() == 0 && tid_x() == 0) st_shared_b32(base(), 1);
    if (relaxed)
      barrier_cluster_arrive_relaxed();
    else
      barrier_cluster_arrive();
    barrier_cluster_wait();
    if (cluster_ctarank() == 1 && tid_x() == 0) {
      EXPECT_EQ(ld_shared_cluster_b32(mapa_shared_cluster(base(), 0)), 1u);
    }
    cluster_sync();
  };
  expect_silent(kCluster, [&] { kernel(false); });
  expect_fault<errors::RaceReadAfterWrite>(kCluster, [&] { kernel(true); });
}

// --- launches --------------------------------------------------------------------------------------------------------

TEST(ErrorsRaised, LaunchInvalid) {
  const Kernel nothing = [] {};
  expect_fault<errors::LaunchInvalid>({.threads = 48}, nothing);
  expect_fault<errors::LaunchInvalid>({.threads = 2048}, nothing);
  expect_fault<errors::LaunchInvalid>({.shared_bytes = 232 * 1024 + 1}, nothing);
  expect_fault<errors::LaunchInvalid>({.grid = {0, 1, 1}}, nothing);
  expect_fault<errors::LaunchInvalid>({.grid = {3, 1, 1}, .cluster = {2, 1, 1}}, nothing);
  expect_fault<errors::LaunchInvalid>({.threads = 512, .registers = 168}, nothing);
  expect_silent({.grid = {4, 2, 2}, .cluster = {2, 2, 1}, .threads = 1024}, nothing);
}

TEST(Launches, EveryCtaRunsOnce) {
  std::vector<u32> count(3 * 4 * 2);
  const auto fill = [&](Memory& m) {
    std::fill(count.begin(), count.end(), 0u);
    m.add(count, "count");
  };
  for (const emu::Dim3 cluster : {emu::Dim3{1, 1, 1}, emu::Dim3{1, 2, 1}, emu::Dim3{3, 1, 2}})
    expect_silent(
        {.grid = {3, 4, 2}, .cluster = cluster, .threads = 32, .resident_ctas = 5},
        [&] {
          const u32 index = ctaid_x() + nctaid_x() * (ctaid_y() + nctaid_y() * ctaid_z());
          if (tid_x() == 0) {
            EXPECT_EQ(atom_relaxed_gpu_global_add_u32(&count[index], 1), 0u);
          }
          EXPECT_EQ(cluster_nctarank(), cluster.count());
          EXPECT_EQ(cluster_ctarank(),
                    ctaid_x() % cluster.x + cluster.x * (ctaid_y() % cluster.y + cluster.y * (ctaid_z() % cluster.z)));
        },
        fill);
}

}  // namespace
}  // namespace iso::test
