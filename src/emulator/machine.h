// The state of one launch: threads, CTAs, clusters and the grid that schedules them. The engines (mbarrier.h,
// copy_engine.h, wgmma.h, ...) act on it; each keeps its own part of the state in the struct named after it.
#pragma once

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/barriers.h"
#include "emulator/clock.h"
#include "emulator/copy_engine.h"
#include "emulator/fault.h"
#include "emulator/fiber.h"
#include "emulator/launch.h"
#include "emulator/mbarrier.h"
#include "emulator/memory_instructions.h"
#include "emulator/registers.h"
#include "emulator/shadow.h"
#include "emulator/wgmma.h"

namespace iso::emu {

struct Cta;
class Grid;

inline constexpr u32 kWarpSize = 32, kWarpgroupSize = 128;
// Shared memory begins here, 1024-aligned as kernels declare it; offset 0 of the window stays unused, so that a zero
// address is caught. The rank of a CTA in its cluster stands above bit 24, as mapa gives it on the chip.
inline constexpr u32 kSharedBase = 1024, kRankShift = 24, kMaxSharedBytes = 227 * 1024;

struct Thread {
  Cta* cta = nullptr;
  u32 tid = 0;
  ActorId actor = 0;
  u32 time = 1;  // its own component of the clock; advances at every release
  Knowledge known;
  bool knows_previous_grid = true;

  Fiber fiber;
  enum class State : u8 { ready, blocked, finished } state = State::ready;
  Wait wait;  // what for, while blocked

  ThreadBarriers barriers;
  ThreadCopies copies;
  ThreadWgmma wgmma;
  ThreadAtomics atomics;
  u32 registers = 0;

  u32 warp() const { return tid / kWarpSize; }
  u32 lane() const { return tid % kWarpSize; }
};

struct Cluster {
  u32 index = 0;
  std::vector<Cta*> ctas;  // by rank
  ClusterBarrier barrier;
};

struct FreeBytes {
  void operator()(u8* bytes) const { std::free(bytes); }
};

struct Cta {
  Cta(Grid& grid, Cluster& cluster, u32 index, u32 rank);

  Grid& grid;
  Cluster& cluster;
  u32 index, rank;
  Dim3 id;
  std::deque<Thread> threads;
  u32 running = 0;                          // threads that have not finished
  std::unique_ptr<u8[], FreeBytes> shared;  // aligned like a swizzle pattern
  Shadow shadow;

  CtaMbarriers mbarriers;
  CtaBarriers barriers;
  std::vector<Warpgroup> warpgroups;
  RegisterPool registers;

  // Actors beyond the threads get their numbers as they appear.
  ActorId new_actor(std::string name);
  std::vector<std::string> actor_names;
  // What CTAs of the cluster did to this one's shared memory: must have happened before this CTA ends.
  std::vector<std::pair<ActorId, u32>> remote_accesses;
  void note_remote_access(ActorId actor, u32 time);

  bool finished() const { return running == 0; }
};

class Grid : public Reporter {
 public:
  Grid(const LaunchConfig& config, GlobalMemory& memory, const std::function<void()>& kernel);

  Expected<LaunchStats> run();

  std::string actor_name(ActorId actor) const override;

  // --- for the engines
  void block(Thread& thread, const Wait& wait);  // until wake()
  void wake(Thread& thread);
  void yield(Thread& thread);
  void progress() { polls_ = 0; }  // something happened that a polling thread may be waiting for
  void poll(Thread& thread);       // the thread asks in a loop: lets others run
  u64 dice(u64 sides);
  bool removed(const char* instruction, Location at);  // a mutation test has removed this call

  // Reads or writes of one thread by the generic proxy; own: to the shared memory of its CTA only.
  void access_shared(Thread& thread, u32 address, u32 bytes, bool write, const char* instruction, Location at,
                     bool own = true);
  Observer observer(const Thread& thread) const;
  // The CTA whose shared memory holds the address, and the memory itself; own: it must be the thread's CTA.
  Cta& shared_cta(Thread& thread, u32 address, bool own, const char* instruction, Location at);
  void check_bounds(Thread& thread, u32 address, u32 bytes, u32 alignment, const char* instruction, Location at);
  u8* shared_bytes(Cta& cta, u32 address) { return cta.shared.get() + shared_offset(address); }
  static u32 shared_offset(u32 address) { return (address & ((1u << kRankShift) - 1)) - kSharedBase; }
  std::string where(const Thread& thread, Location at) const { return Reporter::where(thread.actor, at); }

  const LaunchConfig& config;
  GlobalMemory& memory;
  ClockMemo clocks;
  CopyEngine copies;
  std::vector<Warpgroup*> busy_warpgroups;  // with a wgmma that all their threads have issued
  LaunchStats stats;

 private:
  static void thread_main(void* thread);
  void run_thread(Thread& thread);
  void finish_thread(Thread& thread);
  void finish_cta(Cta& cta);
  void finish_cluster_member(Cluster& cluster);
  void check_config() const;
  void start_clusters();
  void step();
  bool engines_busy() const;
  void step_engines();
  void schedule();
  void cancel();
  [[noreturn]] void fail_deadlock(const char* reason) const;
  std::string waiting_threads() const;

  const std::function<void()>& kernel_;
  std::deque<Cluster> clusters_;
  std::deque<Cta> ctas_;
  std::vector<Cta*> resident_;
  u32 next_cluster_ = 0;
  std::deque<Thread*> ready_;
  u64 random_;
  u64 polls_ = 0;
  bool cancelled_ = false;
  std::optional<Error> error_;
};

// The thread whose fiber is running.
Thread& this_thread();

// Whether a mutation test has removed this synchronisation call of the kernel.
inline bool removed(const char* instruction, Location at) { return this_thread().cta->grid.removed(instruction, at); }

// The CTA's shared memory as the kernel's struct, and the shared-memory address of something in it.
void* shared_storage(u64 size, Location at);
u32 smem_u32(const void* p, Location at);

// --- knowledge of threads
void release(Thread& thread, KnowledgeBuilder& into);
void acquire(Thread& thread, const Knowledge& known);
void acquire(Thread& thread, ActorId actor, u32 time);  // the actor's operations up to `time` have completed

}  // namespace iso::emu
