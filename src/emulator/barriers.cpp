#include "emulator/barriers.h"

#include <algorithm>
#include <cstring>

#include "emulator/machine.h"

namespace iso::emu {
namespace {

std::string named_barrier_detail(const Thread& thread) {
  const NamedBarrier& b = *static_cast<const NamedBarrier*>(thread.wait.object);
  return "barrier " + std::to_string(&b - thread.cta->barriers.named.data()) + ", " + std::to_string(b.arrived) + " of " +
         std::to_string(b.expected) + " threads have arrived";
}

std::string rendezvous_detail(const Thread& thread) {
  const Rendezvous& r = *static_cast<const Rendezvous*>(thread.wait.object);
  return "the other lanes, " + std::to_string(r.arrived) + " of " + std::to_string(kWarpSize) + " have come";
}

std::string cluster_detail(const Thread& thread) {
  const ClusterBarrier& b = *static_cast<const ClusterBarrier*>(thread.wait.object);
  return "the cluster's barrier, " + std::to_string(b.arrived) + " threads have arrived in phase " +
         std::to_string(b.phase);
}

void named_barrier(u32 id, u32 threads, bool sync, const char* instruction, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  const auto misuse = [&](const std::string& reason) {
    fail(errors::NamedBarrierMisuse{
        .instruction = instruction, .where = grid.where(t, at), .barrier = id, .reason = reason});
  };
  if (id >= t.cta->barriers.named.size()) misuse("a CTA has barriers 0 to 15");
  if (threads == 0 || threads % kWarpSize || threads > grid.config.threads)
    misuse(std::to_string(threads) + " threads: expected whole warps of this CTA");
  NamedBarrier& b = t.cta->barriers.named[id];
  if (b.arrived && b.expected != threads)
    misuse(std::to_string(threads) + " threads, but the barrier was entered at " + name(b.first) + " with " +
           std::to_string(b.expected));
  if (!b.arrived) b.first = at;
  b.expected = threads;
  b.arrived++;
  release(t, b.arriving);
  grid.progress();
  if (b.arrived == threads) {
    const Knowledge done = b.arriving.snapshot();
    b.arriving = {};
    b.arrived = 0;
    for (Thread* waiting : std::exchange(b.waiting, {})) {
      acquire(*waiting, done);
      grid.wake(*waiting);
    }
    if (sync) acquire(t, done);
  } else if (sync) {
    b.waiting.push_back(&t);
    grid.block(t, {instruction, at, &b, id, &named_barrier_detail});
  }
}

}  // namespace

void bar_sync(u32 barrier, u32 threads, Location at) { named_barrier(barrier, threads, true, "bar.sync", at); }
void bar_arrive(u32 barrier, u32 threads, Location at) { named_barrier(barrier, threads, false, "bar.arrive", at); }

u64 warp_rendezvous(const char* instruction, u64 key, u64 value, u32* registers, Location at,
                    void (*all)(Thread& last, Rendezvous&)) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  Rendezvous& r = t.cta->barriers.warps[t.warp()];
  if (r.arrived == 0) {
    r.instruction = instruction;
    r.at = at;
    r.key = key;
  } else if (std::strcmp(r.instruction, instruction) || r.key != key || !(r.at == at)) {
    fail(errors::WarpDivergence{
        .instruction = instruction, .where = grid.where(t, at), .other = r.instruction, .other_where = name(r.at)});
  }
  r.in[t.lane()] = value;
  r.registers[t.lane()] = registers;
  if (++r.arrived < kWarpSize) {
    grid.block(t, {instruction, at, &r, 0, &rendezvous_detail});
    return r.out[t.lane()];
  }
  r.arrived = 0;
  all(t, r);
  const u32 first = t.warp() * kWarpSize;
  for (u32 lane = 0; lane < kWarpSize; lane++)
    if (lane != t.lane()) grid.wake(t.cta->threads[first + lane]);
  return r.out[t.lane()];
}

void bar_warp_sync(Location at) {
  warp_rendezvous("bar.warp.sync", 0, 0, nullptr, at, [](Thread& last, Rendezvous&) {
    KnowledgeBuilder builder;
    const u32 first = last.warp() * kWarpSize;
    for (u32 lane = 0; lane < kWarpSize; lane++) release(last.cta->threads[first + lane], builder);
    const Knowledge done = builder.snapshot();
    for (u32 lane = 0; lane < kWarpSize; lane++) acquire(last.cta->threads[first + lane], done);
  });
}

u32 shfl_sync(Shuffle mode, u32 value, u32 argument, Location at) {
  static constexpr const char* kNames[] = {"shfl.sync.idx", "shfl.sync.up", "shfl.sync.down", "shfl.sync.bfly"};
  // The source lane may differ by lane only with idx; it travels in the upper half of the value.
  const u64 key = mode == Shuffle::idx ? 0 : argument;
  const u64 result = warp_rendezvous(kNames[static_cast<int>(mode)], key << 2 | static_cast<u64>(mode),
                                     u64{argument} << 32 | value, nullptr, at, [](Thread&, Rendezvous& r) {
                                       for (u32 lane = 0; lane < kWarpSize; lane++) {
                                         const u32 argument = static_cast<u32>(r.in[lane] >> 32);
                                         u32 source = lane;
                                         switch (static_cast<Shuffle>(r.key & 3)) {
                                           case Shuffle::idx: source = argument % kWarpSize; break;
                                           case Shuffle::up: source = lane >= argument ? lane - argument : lane; break;
                                           case Shuffle::down:
                                             source = lane + argument < kWarpSize ? lane + argument : lane;
                                             break;
                                           case Shuffle::bfly: source = (lane ^ argument) % kWarpSize; break;
                                         }
                                         r.out[lane] = r.in[source] & 0xffffffffu;
                                       }
                                     });
  return static_cast<u32>(result);
}

u32 vote_sync_ballot(bool predicate, Location at) {
  return static_cast<u32>(warp_rendezvous("vote.sync.ballot", 0, predicate, nullptr, at, [](Thread&, Rendezvous& r) {
    u64 mask = 0;
    for (u32 lane = 0; lane < kWarpSize; lane++) mask |= r.in[lane] << lane;
    r.out.fill(mask);
  }));
}

bool elect_sync(Location at) {
  warp_rendezvous("elect.sync", 0, 0, nullptr, at, [](Thread&, Rendezvous&) {});
  return this_thread().lane() == 0;  // PTX leaves the choice open; the chip takes the lowest lane
}

// --- the cluster's barrier -------------------------------------------------------------------------------------------

namespace {

u32 threads_of(const Cluster& cluster) {
  u32 threads = 0;
  for (const Cta* cta : cluster.ctas) threads += cta->running;
  return threads;
}

void complete_if_all_arrived(Grid& grid, Cluster& cluster) {
  ClusterBarrier& b = cluster.barrier;
  if (b.arrived == 0 || b.arrived < threads_of(cluster)) return;
  b.arrived = 0;
  b.phase++;
  b.done = b.arriving.snapshot();
  for (Thread* waiting : std::exchange(b.waiting, {})) grid.wake(*waiting);
}

}  // namespace

void barrier_cluster_arrive(bool releasing, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  ClusterBarrier& b = t.cta->cluster.barrier;
  if (t.barriers.cluster_arrived)
    fail(errors::ClusterBarrierMisuse{.where = grid.where(t, at), .reason = "the thread arrives twice without a wait"});
  t.barriers.cluster_arrived = true;
  t.barriers.cluster_phase = b.phase;
  if (releasing) release(t, b.arriving);
  grid.progress();
  b.arrived++;
  complete_if_all_arrived(grid, t.cta->cluster);
}

void barrier_cluster_wait(Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  ClusterBarrier& b = t.cta->cluster.barrier;
  if (!t.barriers.cluster_arrived)
    fail(errors::ClusterBarrierMisuse{.where = grid.where(t, at), .reason = "the thread waits without having arrived"});
  while (b.phase == t.barriers.cluster_phase) {
    b.waiting.push_back(&t);
    grid.block(t, {"barrier.cluster.wait", at, &b, 0, &cluster_detail});
  }
  t.barriers.cluster_arrived = false;
  acquire(t, b.done);
}

void leave_cluster_barrier(Thread& thread) {
  Cluster& cluster = thread.cta->cluster;
  ClusterBarrier& b = cluster.barrier;  // counts running threads only
  if (thread.barriers.cluster_arrived && thread.barriers.cluster_phase == b.phase) b.arrived--;
  complete_if_all_arrived(thread.cta->grid, cluster);
}

}  // namespace iso::emu
