// Vector clocks: what has happened before what. An actor is whatever can touch memory by itself: a thread, the copies that
// complete on one mbarrier, the wgmma pipe of a warpgroup, a thread's bulk stores. A clock says, per actor, up to which of
// its times everything is known to have happened. Clocks are immutable and shared: 128 threads that pass the same barrier
// hold the same one.
#pragma once

#include <utility>
#include <vector>

#include "base/compile.h"

namespace iso::emu {

// CTA of the grid (high bits) and actor within the CTA.
using ActorId = u32;
inline constexpr int kActorBits = 12;
inline constexpr u32 kMaxActors = 1u << kActorBits;
constexpr ActorId actor_id(u32 cta, u32 index) { return cta << kActorBits | index; }
constexpr u32 cta_of(ActorId actor) { return actor >> kActorBits; }
constexpr u32 index_of(ActorId actor) { return actor & (kMaxActors - 1); }

// Not actors of the grid: what was there before the launch, and the grid before this one (griddepcontrol).
inline constexpr ActorId kHost = 0xffffffffu;
inline constexpr ActorId kPreviousGrid = 0xfffffffeu;

// The time of an operation that has not completed: nobody can know it.
inline constexpr u32 kInFlight = 0xffffffffu;

// A pointer that counts its references. The emulator of one launch runs on one host thread.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* p) : p_(p) {
    if (p_) p_->references++;
  }
  Ref(const Ref& other) : Ref(other.p_) {}
  Ref(Ref&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~Ref() {
    if (p_ && --p_->references == 0) delete p_;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const Ref& other) const { return p_ == other.p_; }

 private:
  T* p_ = nullptr;
};

// The part of a clock that belongs to the actors of one CTA, by actor index; actors beyond its end are at time 0.
struct Times {
  u32 references = 0;
  std::vector<u32> at;
};

struct Clock {
  struct Part {
    u32 cta;
    Ref<Times> times;
  };
  u32 references = 0;
  std::vector<Part> parts;  // almost always one: a clock has a part per CTA it has heard of

  u32 at(ActorId actor) const {
    for (const Part& part : parts)
      if (part.cta == cta_of(actor)) {
        const std::vector<u32>& times = part.times->at;
        return index_of(actor) < times.size() ? times[index_of(actor)] : 0;
      }
    return 0;
  }
  bool knows_cta(u32 cta) const {
    for (const Part& part : parts)
      if (part.cta == cta) return true;
    return false;
  }
};
using ClockRef = Ref<Clock>;

inline u32 time_of(const ClockRef& clock, ActorId actor) { return clock ? clock->at(actor) : 0; }

// Joins clocks and remembers recent results, so that threads with equal clocks come out with one shared clock.
class ClockMemo {
 public:
  ClockRef join(const ClockRef& a, const ClockRef& b);
  ClockRef raise(const ClockRef& a, ActorId actor, u32 time);  // a, with the actor at `time` or later

 private:
  static constexpr int kSlots = 128;
  struct Joined {
    ClockRef a, b, result;
  };
  struct Raised {
    ClockRef a, result;
    ActorId actor = 0;
    u32 time = 0;
  };
  Joined joined_[kSlots];
  Raised raised_[kSlots];
};

// A clock under construction: what arrives at a barrier.
class ClockBuilder {
 public:
  void join(const ClockRef& clock);
  void raise(ActorId actor, u32 time);
  ClockRef snapshot() const;  // null if nothing was joined

 private:
  std::vector<u32>& part(u32 cta);

  std::vector<std::pair<u32, std::vector<u32>>> parts_;
  ClockRef last_;  // joined already: threads of a warp come with equal clocks
};

// What a thread, or whoever waits at a barrier, knows: what happened before, and which of it was made visible to the async
// proxy by a fence.proxy.async somewhere on the way. The two state spaces can be fenced apart.
struct Knowledge {
  ClockRef ordered, async_shared, async_global;
};

class KnowledgeBuilder {
 public:
  void join(const Knowledge& known) {
    ordered.join(known.ordered);
    async_shared.join(known.async_shared);
    async_global.join(known.async_global);
  }
  Knowledge snapshot() const { return {ordered.snapshot(), async_shared.snapshot(), async_global.snapshot()}; }

  ClockBuilder ordered, async_shared, async_global;
};

}  // namespace iso::emu
