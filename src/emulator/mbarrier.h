// mbarrier objects: 64 bits of shared memory that count arrivals and transaction bytes per phase.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "emulator/clock.h"
#include "emulator/location.h"

namespace iso::emu {

struct Cta;
struct Thread;
class Grid;

struct Mbarrier {
  Cta* cta;
  u32 offset;     // in shared memory
  ActorId actor;  // of the copies that complete on it; the actor's time is the number of completed phases
  u32 count, pending;
  u32 phase = 0;
  i64 tx = 0;                    // expected bytes that have not landed
  i64 expected = 0, landed = 0;  // of this phase, for reports
  Thread* initialised_by;
  u32 initialised_time;
  bool published = false;  // to the async proxy and the cluster, by a fence after mbarrier.init
  bool live = true;        // until mbarrier.inval
  std::string name;
  KnowledgeBuilder arriving;
  Knowledge done;  // of all who arrived up to the last completed phase
  std::vector<Thread*> waiting;
};

struct CtaMbarriers {
  std::deque<Mbarrier> all;
  std::vector<Mbarrier*> at;  // by offset / 8
};

void mbarrier_init(u32 address, u32 count, Location at);
void mbarrier_inval(u32 address, Location at);
void mbarrier_arrive(u32 address, u32 count, const char* instruction, Location at);
void mbarrier_arrive_cluster(u32 address, Location at);
void mbarrier_arrive_expect_tx(u32 address, u32 bytes, bool own, Location at);
void mbarrier_expect_tx(u32 address, u32 bytes, Location at);
bool mbarrier_test_wait_parity(u32 address, u32 parity, Location at);
void mbarrier_wait_parity(u32 address, u32 parity, Location at);

// fence.mbarrier_init and fence.proxy.async publish the barriers that the thread has initialised.
void publish_mbarriers(Thread& thread);

// --- for engines
// The barrier at the address, which the thread must know to be initialised; async: and published.
Mbarrier& find_mbarrier(Thread& thread, u32 address, bool own, bool async, const char* instruction, Location at);
void arrive(Grid& grid, Mbarrier& barrier, u32 count, const std::string& where);
void complete_tx(Grid& grid, Mbarrier& barrier, u32 bytes, const std::string& where);
std::string describe(const Mbarrier& barrier);

}  // namespace iso::emu
