#include "emulator/clock.h"

#include <algorithm>
#include <cstdint>

namespace iso::emu {
namespace {

void raise_to(std::vector<u32>& times, const std::vector<u32>& other) {
  if (times.size() < other.size()) times.resize(other.size());
  for (std::size_t i = 0; i < other.size(); i++) times[i] = std::max(times[i], other[i]);
}

void raise_one(std::vector<u32>& times, u32 index, u32 time) {
  if (times.size() <= index) times.resize(index + 1);
  times[index] = std::max(times[index], time);
}

Ref<Times> joined_times(const Ref<Times>& a, const Ref<Times>& b) {
  Times* times = new Times{0, a->at};
  raise_to(times->at, b->at);
  return Ref<Times>(times);
}

std::size_t slot_of(const void* a, std::uintptr_t b, int slots) {
  const std::uintptr_t mixed = (reinterpret_cast<std::uintptr_t>(a) >> 4) * 0x9E3779B97F4A7C15u ^ b * 0xC2B2AE3D27D4EB4Fu;
  return (mixed >> 40) % static_cast<std::size_t>(slots);
}

}  // namespace

ClockRef ClockMemo::join(const ClockRef& a, const ClockRef& b) {
  if (!b || a == b) return a;
  if (!a) return b;
  Joined& memo = joined_[slot_of(a.get(), reinterpret_cast<std::uintptr_t>(b.get()) >> 4, kSlots)];
  if (memo.result && memo.a == a && memo.b == b) return memo.result;
  Clock* clock = new Clock{0, a->parts};
  ClockRef result(clock);
  for (const Clock::Part& part : b->parts) {
    const auto mine = std::find_if(clock->parts.begin(), clock->parts.end(), [&](auto& p) { return p.cta == part.cta; });
    if (mine == clock->parts.end())
      clock->parts.push_back(part);
    else if (!(mine->times == part.times))
      mine->times = joined_times(mine->times, part.times);
  }
  memo = {a, b, result};
  return result;
}

ClockRef ClockMemo::raise(const ClockRef& a, ActorId actor, u32 time) {
  if (time_of(a, actor) >= time) return a;
  Raised& memo = raised_[slot_of(a.get(), std::uintptr_t{actor} << 32 | time, kSlots)];
  if (memo.result && memo.a == a && memo.actor == actor && memo.time == time) return memo.result;
  Clock* clock = a ? new Clock{0, a->parts} : new Clock;
  ClockRef result(clock);
  Times* times = new Times;
  Ref<Times> raised(times);
  bool found = false;
  for (Clock::Part& part : clock->parts) {
    if (part.cta != cta_of(actor)) continue;
    times->at = part.times->at;
    part.times = raised;
    found = true;
  }
  if (!found) clock->parts.push_back({cta_of(actor), raised});
  raise_one(times->at, index_of(actor), time);
  memo = {a, result, actor, time};
  return result;
}

std::vector<u32>& ClockBuilder::part(u32 cta) {
  for (auto& [owner, times] : parts_)
    if (owner == cta) return times;
  return parts_.emplace_back(cta, std::vector<u32>()).second;
}

void ClockBuilder::join(const ClockRef& clock) {
  if (!clock || clock == last_) return;
  for (const Clock::Part& p : clock->parts) raise_to(part(p.cta), p.times->at);
  last_ = clock;
}

void ClockBuilder::raise(ActorId actor, u32 time) { raise_one(part(cta_of(actor)), index_of(actor), time); }

ClockRef ClockBuilder::snapshot() const {
  if (parts_.empty()) return {};
  Clock* clock = new Clock;
  for (const auto& [cta, times] : parts_) clock->parts.push_back({cta, Ref<Times>(new Times{0, times})});
  return ClockRef(clock);
}

}  // namespace iso::emu
