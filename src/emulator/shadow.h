// Shadow memory: who wrote and who read each byte last, and whether that is known to have happened before. Races are found
// from the order that the program enforces, not from the order that happened to occur.
//
// Memory is watched in granules of 16 bytes, the unit of copies and matrix operands. A granule that is accessed in smaller
// pieces is split into records of 4 bytes, or of 2 if need be; it becomes whole again when it is overwritten as a whole.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emulator/clock.h"
#include "emulator/location.h"
#include "emulator/rules.h"

namespace iso::emu {

// Names for reports; implemented by the grid.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual std::string actor_name(ActorId actor) const = 0;
  std::string where(ActorId issuer, Location at) const { return name(at) + ", " + actor_name(issuer); }

  u16 site(Location at);
  Location site(u16 id) const { return sites_[id]; }

 private:
  std::vector<Location> sites_;
  std::array<u16, 64> recent_{};  // by line: where to look first
};

// Who performs an access: a thread, or the lanes of a warp together, of whom one must know what happened before.
class Observer {
 public:
  // Lanes have the actors first, first + 1, ...
  explicit Observer(ActorId first = 0, int width = 1) : first_(first), width_(width) {
    for (int i = 0; i < width; i++) own_[i] = 0;
  }
  void add(ActorId actor, u32 time, const Knowledge& known, bool knows_previous_grid);
  bool knows(ActorId actor, u32 time) const;
  bool made_visible(ActorId actor, u32 time, bool global) const;  // to the async proxy

 private:
  ActorId first_;
  int width_;
  bool previous_grid_ = false;
  u32 own_[32];
  Knowledge known_;
  std::vector<Knowledge> more_;  // of lanes that know something else
};

struct Access {
  const char* instruction;
  Location at;
  ActorId issuer;  // the thread in whose program the access stands
  ActorId actor;   // who performs it, and the actor's time
  u32 time;
  bool write = false, atomic = false;
  bool async = false;  // by the async proxy
  u8 swizzle = 0;      // 1 + swizzle mode of a copy or a matrix operand, 0 where it has none
};

class Shadow {
 public:
  Shadow(std::string space, u64 size, bool global, bool initialised);
  Shadow(Shadow&&) = default;
  Shadow& operator=(Shadow&&) = default;
  ~Shadow();

  void mark_barrier(u32 offset, bool live);
  void set_time(u64 offset, u64 size, ActorId writer, u32 time);  // a write in flight has completed
  void forget_launch();                                           // everything so far was done by the previous grid
  const std::string& space() const { return space_; }
  u64 size() const { return size_; }

 private:
  friend class AccessCheck;
  enum Flag : u8 { kInitialised = 1, kAsyncWrite = 2, kBarrier = 4, kHasReader = 8 };
  enum class Use : u8 { read, atomic_read, atomic_write };
  struct Epoch {
    ActorId actor;
    u32 time;
    u16 site;
    Use use;
  };
  struct Record {
    ActorId writer = kHost;
    u32 written = 0;
    Epoch reader{0, 0, 0, Use::read};  // valid with kHasReader and without `more`
    u32 more = 0;                      // index of a list of readers, 0 for none
    u16 write_site = 0;
    u8 flags = 0, swizzle = 0;
  };
  static constexpr u32 kGranuleBytes = 16, kPageGranules = 512;
  struct Granule {
    Record whole;
    u32 split = 0;        // index of its pieces, 0 while it is whole
    u32 piece_bytes = 0;  // of a split granule: 4 or 2
  };
  using Pieces = std::array<Record, kGranuleBytes / 2>;

  Granule& granule(u64 index);
  // Splits the granule so that [offset, offset + size) consists of whole pieces.
  void split(Granule& granule, u64 offset, u64 size);
  void repeat(Pieces& pieces, u32 from, u32 count,
              u32 to);  // copies pieces[from] to `count` places from `to`, readers and all
  void join(Granule& granule);
  std::vector<Epoch>& readers(Record& record);  // moved to a list
  void clear_readers(Record& record);
  template <class F>
  void for_each_record(u64 offset, u64 size, F f);

  std::string space_;
  u64 size_;
  bool global_, initialised_;
  std::vector<std::unique_ptr<Granule[]>> pages_;
  std::vector<Pieces> pieces_{1};
  std::vector<u32> free_pieces_;
  std::vector<std::vector<Epoch>> readers_{1};
  std::vector<u32> free_readers_;
};

// One instruction's accesses: checks each and records it. All observers must know the conflicting accesses.
class AccessCheck {
 public:
  AccessCheck(Reporter& reporter, const Rules& rules, const Access& access, std::span<const Observer> observers);

  void operator()(Shadow& shadow, u64 offset, u64 size);  // offset and size are even

 private:
  using Record = Shadow::Record;
  using Epoch = Shadow::Epoch;

  void record(Shadow& shadow, Record& r, u64 offset);
  void check_writer(const Shadow& shadow, const Record& r, u64 offset);
  void check_readers(Shadow& shadow, const Record& r, u64 offset);
  void check_swizzle(const Record& r, u64 offset) const;
  void add_reader(Shadow& shadow, Record& r, Shadow::Use use);
  bool conflicts(Shadow::Use earlier) const;
  bool all_know(ActorId actor, u32 time);
  std::string address(const Shadow& shadow, u64 offset) const;
  std::string other(ActorId actor, u16 site) const;
  [[noreturn]] void fail_order(const Shadow& shadow, u64 offset, ActorId actor, u32 time, u16 site, bool earlier_wrote);

  Reporter& reporter_;
  const Rules& rules_;
  const Access& access_;
  std::span<const Observer> observers_;
  u16 site_;
  // The last writer found in order, and the last reader asked about: neighbouring granules mostly have the same.
  ActorId known_writer_ = kHost;
  u32 known_written_ = 0;
  bool known_writer_async_ = false;
  ActorId asked_actor_ = kHost;
  u32 asked_time_ = 0;
  bool asked_known_ = true;
};

}  // namespace iso::emu
