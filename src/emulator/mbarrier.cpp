#include "emulator/mbarrier.h"

#include <algorithm>

#include "emulator/machine.h"

namespace iso::emu {
namespace {

constexpr u32 kMaxCount = (1u << 20) - 1;
constexpr i64 kMaxTransactionBytes = (1 << 20) - 1;
constexpr u64 kYieldAfterArrival = 8;  // one in so many arrivals lets others run first

std::string wait_detail(const Thread& thread) {
  const Mbarrier& b = *static_cast<const Mbarrier*>(thread.wait.object);
  return describe(b) + ", parity " + std::to_string(thread.wait.value);
}

void wrong_bytes(const Mbarrier& b, const std::string& where, const std::string& reason) {
  fail(errors::MbarrierTransactionBytes{.barrier = describe(b),
                                        .where = where,
                                        .phase = b.phase,
                                        .expected = b.expected,
                                        .landed = b.landed,
                                        .reason = reason});
}

void complete_phase_if_done(Grid& grid, Mbarrier& b, const std::string& where) {
  if (b.pending == 0 && b.tx < 0) wrong_bytes(b, where, "all arrivals are there, but more bytes landed than were expected");
  if (b.pending || b.tx) return;
  b.phase++;
  b.pending = b.count;
  b.expected = b.landed = 0;
  b.arriving.ordered.raise(b.actor, b.phase);
  b.done = b.arriving.snapshot();
  for (Thread* waiting : std::exchange(b.waiting, {})) grid.wake(*waiting);
}

void expect(Mbarrier& b, u32 bytes, const std::string& where) {
  b.tx += bytes;
  b.expected += bytes;
  if (b.tx > kMaxTransactionBytes) wrong_bytes(b, where, "the count of expected bytes has 20 bits");
}

void yield_sometimes(Thread& t) {
  if (t.cta->grid.dice(kYieldAfterArrival) == 0) t.cta->grid.yield(t);
}

}  // namespace

std::string describe(const Mbarrier& b) {
  return "mbarrier " + b.name + (b.cta->cluster.ctas.size() > 1 ? " of rank " + std::to_string(b.cta->rank) : "");
}

void mbarrier_init(u32 address, u32 count, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  constexpr const char* kInstruction = "mbarrier.init";
  const auto invalid = [&](const std::string& reason) {
    fail(errors::MbarrierInitInvalid{.where = grid.where(t, at), .reason = reason});
  };
  grid.shared_cta(t, address, true, kInstruction, at);
  grid.check_bounds(t, address, 8, 8, kInstruction, at);
  const u32 offset = Grid::shared_offset(address);
  CtaMbarriers& barriers = t.cta->mbarriers;
  if (Mbarrier* other = barriers.at[offset / 8]; other && other->live)
    invalid(describe(*other) + " is already there: use mbarrier.inval first");
  if (count == 0 || count > kMaxCount) invalid("a count of " + std::to_string(count) + ": expected 1 to 1048575");
  grid.access_shared(t, address, 8, true, kInstruction, at);
  std::string barrier_name = "at byte " + std::to_string(offset) + " (initialised at " + name(at) + ")";
  for (const auto& [named_offset, given] : grid.config.barrier_names)
    if (named_offset == offset) barrier_name = given;
  Mbarrier& b = barriers.all.emplace_back();
  b.cta = t.cta;
  b.offset = offset;
  b.count = b.pending = count;
  b.initialised_by = &t;
  b.initialised_time = t.time;
  b.name = barrier_name;
  b.actor = t.cta->new_actor("copy that completes on " + describe(b));
  barriers.at[offset / 8] = &b;
  t.cta->shadow.mark_barrier(offset, true);
}

void publish_mbarriers(Thread& thread) {
  for (Mbarrier& b : thread.cta->mbarriers.all)
    if (b.initialised_by == &thread) b.published = true;
}

Mbarrier& find_mbarrier(Thread& t, u32 address, bool own, bool async, const char* instruction, Location at) {
  Grid& grid = t.cta->grid;
  Cta& cta = grid.shared_cta(t, address, own, instruction, at);
  grid.check_bounds(t, address, 8, 8, instruction, at);
  Mbarrier* b = cta.mbarriers.at[Grid::shared_offset(address) / 8];
  if (!b || !b->live)
    fail(errors::MbarrierMissing{
        .instruction = instruction, .where = grid.where(t, at), .offset = Grid::shared_offset(address)});
  if (b->initialised_by != &t && !grid.observer(t).knows(b->initialised_by->actor, b->initialised_time))
    fail(errors::MbarrierInitUnordered{.instruction = instruction,
                                       .where = grid.where(t, at),
                                       .barrier = describe(*b),
                                       .initialiser = grid.actor_name(b->initialised_by->actor)});
  if ((async || &cta != t.cta) && !b->published)
    fail(errors::MbarrierInitUnpublished{.instruction = instruction, .where = grid.where(t, at), .barrier = describe(*b)});
  return *b;
}

void mbarrier_inval(u32 address, Location at) {
  Thread& t = this_thread();
  Mbarrier& b = find_mbarrier(t, address, true, false, "mbarrier.inval", at);
  b.live = false;
  t.cta->shadow.mark_barrier(b.offset, false);
  t.cta->grid.access_shared(t, address, 8, true, "mbarrier.inval", at);
}

void arrive(Grid& grid, Mbarrier& b, u32 count, const std::string& where) {
  if (count == 0 || b.pending < count)
    fail(errors::MbarrierOverArrival{.barrier = describe(b), .where = where, .count = b.count, .phase = b.phase});
  grid.progress();
  b.pending -= count;
  complete_phase_if_done(grid, b, where);
}

void complete_tx(Grid& grid, Mbarrier& b, u32 bytes, const std::string& where) {
  b.tx -= bytes;
  b.landed += bytes;
  complete_phase_if_done(grid, b, where);
}

void mbarrier_arrive(u32 address, u32 count, const char* instruction, Location at) {
  Thread& t = this_thread();
  Mbarrier& b = find_mbarrier(t, address, true, false, instruction, at);
  release(t, b.arriving);
  arrive(t.cta->grid, b, count, t.cta->grid.where(t, at));
  yield_sometimes(t);
}

void mbarrier_arrive_cluster(u32 address, Location at) {
  Thread& t = this_thread();
  Mbarrier& b = find_mbarrier(t, address, false, false, "mbarrier.arrive.shared::cluster", at);
  if (b.cta != t.cta) b.cta->note_remote_access(t.actor, t.time);
  release(t, b.arriving);
  arrive(t.cta->grid, b, 1, t.cta->grid.where(t, at));
  yield_sometimes(t);
}

void mbarrier_arrive_expect_tx(u32 address, u32 bytes, bool own, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  Mbarrier& b = find_mbarrier(t, address, own, false, "mbarrier.arrive.expect_tx", at);
  if (b.cta != t.cta) b.cta->note_remote_access(t.actor, t.time);
  expect(b, bytes, grid.where(t, at));
  release(t, b.arriving);
  arrive(grid, b, 1, grid.where(t, at));
  yield_sometimes(t);
}

void mbarrier_expect_tx(u32 address, u32 bytes, Location at) {
  Thread& t = this_thread();
  Mbarrier& b = find_mbarrier(t, address, true, false, "mbarrier.expect_tx", at);
  expect(b, bytes, t.cta->grid.where(t, at));
}

bool mbarrier_test_wait_parity(u32 address, u32 parity, Location at) {
  Thread& t = this_thread();
  Mbarrier& b = find_mbarrier(t, address, true, false, "mbarrier.test_wait.parity", at);
  if ((b.phase & 1) == (parity & 1)) {
    t.cta->grid.poll(t);
    return false;
  }
  acquire(t, b.done);
  return true;
}

void mbarrier_wait_parity(u32 address, u32 parity, Location at) {
  Thread& t = this_thread();
  Mbarrier& b = find_mbarrier(t, address, true, false, "mbarrier.try_wait.parity", at);
  while ((b.phase & 1) == (parity & 1)) {
    b.waiting.push_back(&t);
    t.cta->grid.block(t, {"mbarrier.try_wait.parity", at, &b, parity & 1, &wait_detail});
  }
  acquire(t, b.done);
}

}  // namespace iso::emu
