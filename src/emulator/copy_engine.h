// Asynchronous copies: tensor copies and bulk copies of the async proxy, cp.async of the generic proxy. A copy poisons its
// destination when it is issued and lands at some later time; a store reads its source at some later time.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "emulator/clock.h"
#include "emulator/location.h"
#include "emulator/tensor_map.h"

namespace iso::emu {

struct Cta;
struct Thread;
struct Mbarrier;
class Grid;

struct Copy {
  enum class Kind { tensor_load, tensor_store, bulk_load, bulk_store, bulk_to_peer, cp_async } kind;
  Thread* thread;
  Location at;
  const char* instruction;
  TensorMapFields map{};
  std::array<i32, 5> coordinate{};
  bool add = false;  // reduce instead of store
  u64 global = 0;    // bulk copies and cp.async
  u32 shared = 0;    // in the thread's CTA
  u32 bytes = 0;
  u32 source_bytes = 0;  // cp.async: the rest is filled with zeros
  u32 group = 0;         // stores and cp.async
  struct Target {
    Cta* cta;
    u32 shared;
    Mbarrier* barrier;
    u32 phase;  // of the barrier when the copy was issued
  };
  std::vector<Target> targets{};  // of loads: one, or the CTAs of a multicast
  std::vector<u8> data{};         // of a store whose source has been read
  bool source_read = false;
};

struct CopyEngine {
  std::vector<std::unique_ptr<Copy>> in_flight;
};

// Arrivals that cp.async.mbarrier.arrive.noinc owes, when the thread's copies up to `group_time` have landed.
struct OwedArrival {
  Mbarrier* barrier;
  u32 time;
  Location at;
};

struct ThreadCopies {
  // Bulk stores: reading the source and writing the destination complete separately.
  ActorId reads = 0, writes = 0;  // actors, 0 until used; time: bulk groups
  u32 bulk_groups = 0;            // committed
  u32 bulk_uncommitted = 0;
  Location last_bulk;
  // cp.async; time: copies issued
  ActorId async_actor = 0;
  u32 async_issued = 0;
  std::vector<u32> async_groups;  // copies issued when each group was committed
  std::vector<OwedArrival> owed;
  Location last_async;
  bool waiting = false;  // blocked in one of the wait_group instructions
};

struct TensorCoordinates {
  int rank;
  std::array<i32, 5> at;
};

void cp_async_bulk_tensor_load(u32 destination, const u64 (&map)[16], u32 barrier, const TensorCoordinates& c, u32 cta_mask,
                               const char* instruction, Location at);  // cta_mask 0: no multicast
void cp_async_bulk_tensor_store(const u64 (&map)[16], u32 source, const TensorCoordinates& c, bool add,
                                const char* instruction, Location at);
void cp_async_bulk_load(u32 destination, const void* source, u32 bytes, u32 barrier, u32 cta_mask, Location at);
void cp_async_bulk_store(void* destination, u32 source, u32 bytes, bool add_f32, Location at);
void cp_async_bulk_to_peer(u32 destination, u32 source, u32 bytes, u32 barrier, Location at);
void cp_async_bulk_commit_group(Location at);
void cp_async_bulk_wait_group(u32 pending, bool read_only, Location at);

void cp_async(u32 destination, const void* source, u32 bytes, u32 source_bytes, const char* instruction, Location at);
void cp_async_commit_group(Location at);
void cp_async_wait_group(u32 pending, Location at);
void cp_async_wait_all(Location at);
void cp_async_mbarrier_arrive_noinc(u32 barrier, Location at);

// --- for the grid
void complete_copy(Grid& grid, std::size_t index);
void check_copies_at_exit(Thread& thread);

}  // namespace iso::emu
