// Barriers between threads: the 16 named barriers of a CTA, rendezvous of the 32 lanes of a warp, the barrier of a cluster.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "emulator/clock.h"
#include "emulator/location.h"

namespace iso::emu {

struct Thread;

// Why a thread is blocked, for the deadlock report.
struct Wait {
  const char* instruction = "";
  Location at;
  const void* object = nullptr;
  i64 value = 0;
  std::string (*detail)(const Thread&) = nullptr;
};

struct NamedBarrier {
  u32 expected = 0, arrived = 0;
  KnowledgeBuilder arriving;
  std::vector<Thread*> waiting;
  Location first;
};

// The lanes of a warp at one warp-wide instruction: each brings a value, the last computes everyone's result.
struct Rendezvous {
  const char* instruction = "";
  Location at;
  u64 key = 0;  // immediate operands: equal in all lanes
  u32 arrived = 0;
  std::array<u64, 32> in, out;
  std::array<u32*, 32> registers{};  // where a lane wants its results, for instructions with several
};

struct CtaBarriers {
  std::array<NamedBarrier, 16> named;
  std::vector<Rendezvous> warps;
};

struct ClusterBarrier {
  u32 arrived = 0;
  u32 phase = 0;
  KnowledgeBuilder arriving;
  Knowledge done;
  std::vector<Thread*> waiting;
};

struct ThreadBarriers {
  bool cluster_arrived = false;
  u32 cluster_phase = 0;  // of the arrival
};

enum class Shuffle { idx, up, down, bfly };

void bar_sync(u32 barrier, u32 threads, Location at);
void bar_arrive(u32 barrier, u32 threads, Location at);
void bar_warp_sync(Location at);
u32 shfl_sync(Shuffle mode, u32 value, u32 lane_argument, Location at);
u32 vote_sync_ballot(bool predicate, Location at);
bool elect_sync(Location at);

void barrier_cluster_arrive(bool release, Location at);
void barrier_cluster_wait(Location at);
// A finished thread counts as arrived in every later phase.
void leave_cluster_barrier(Thread& thread);

// Runs `all` once every lane of the warp has come, then returns this lane's result.
u64 warp_rendezvous(const char* instruction, u64 key, u64 value, u32* registers, Location at,
                    void (*all)(Thread& last, Rendezvous&));

}  // namespace iso::emu
