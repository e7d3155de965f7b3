// wgmma: one pipe per warpgroup. A product is issued when its 128 threads have come to it; it reads its operands and writes
// its accumulators at some later time, at the latest in the wait_group that covers it.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "emulator/clock.h"
#include "emulator/location.h"
#include "emulator/shadow.h"

namespace iso::emu {

struct Cta;
struct Thread;
class Grid;

enum class MatrixType : u8 { bf16, f16 };

// The registers of one thread that a product uses: accumulators or a fragment of A. While in flight, any access is a fault.
class Fragment {
 public:
  Fragment(float* values, int count) : values_(values), count_(count) {}
  Fragment(const Fragment&) = delete;
  Fragment& operator=(const Fragment&) = delete;
  ~Fragment() {
    if (owner_) lose();
  }

  // To be called before every access by the thread.
  void touch(int index) {
    if (owner_) fail_in_flight(index);
    if (!fences_) find_fences();
    touched_ = 1 + *fences_;
  }

 private:
  friend struct WgmmaPipe;
  void find_fences();
  void lose();
  [[noreturn]] void fail_in_flight(int index) const;

  float* values_;  // accumulators; null for a fragment of A
  int count_;
  Thread* owner_ = nullptr;  // while in flight
  Location issued_at_;
  u32 group_ = 0;                // of the last product that uses it
  int tile_ = -1;                // of the warpgroup: where accumulators are while in flight
  const u32* fences_ = nullptr;  // of the thread
  u32 touched_ = 0;              // 1 + number of the thread's wgmma.fences before its last access, 0: never accessed
  bool defined_ = false;         // by a product
};

struct WgmmaShape {
  int n;
  MatrixType type;
  bool a_in_registers, a_mn_major, b_mn_major;
  bool operator==(const WgmmaShape&) const = default;
};

struct Wgmma {
  WgmmaShape shape;
  u64 desc_a, desc_b;
  bool scale_d;
  u32 group = 0, arrived = 0;
  bool issued = false;
  int tile = -1;
  bool fresh = false;  // the accumulators come from registers, not from a product in flight
  Location at;
  std::array<Observer, 4> warps;
  std::vector<std::array<u32, 4>> a;  // fragments, by thread
};

struct Warpgroup {
  Cta* cta = nullptr;
  u32 index = 0;
  ActorId actor = 0;       // time: completed groups
  std::deque<Wgmma> pipe;  // not yet executed
  u64 executed = 0;        // products that have left the pipe
  struct Tile {
    std::vector<float> values;  // 64 x n
    int n = 0;                  // 0: free
    u32 returned = 0;           // threads that have their accumulators back
  };
  std::vector<Tile> tiles;
  std::vector<Thread*> waiting;
  bool listed = false;  // in Grid::busy_warpgroups
};

struct ThreadWgmma {
  u32 fences = 0;
  bool fenced = false;  // since the last wait_group
  u64 issued = 0;
  u32 groups = 0;  // committed
  std::vector<Fragment*> in_flight;
  bool lost_fragment = false;  // one went out of scope in flight
  Location lost_at, last_at;
};

void wgmma_fence(Location at);
void wgmma_commit_group(Location at);
void wgmma_wait_group(u32 pending, Location at);
void wgmma_mma_async(const WgmmaShape& shape, Fragment& d, Fragment* a, const u32* a_registers, u64 desc_a, u64 desc_b,
                     bool scale_d, Location at);

// --- for the grid
bool can_execute(const Warpgroup& warpgroup);
void execute_next(Grid& grid, Warpgroup& warpgroup);

}  // namespace iso::emu
