#include "emulator/copy_engine.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "emulator/machine.h"

namespace iso::emu {
namespace {

constexpr u8 kPoison = 0xff;  // NaN in every floating-point type
constexpr u32 kTensorAlignment = 128, kBulkAlignment = 16;

[[noreturn]] void invalid(Thread& t, const char* instruction, Location at, const std::string& reason) {
  fail(errors::BulkCopyInvalid{.instruction = instruction, .where = t.cta->grid.where(t, at), .reason = reason});
}

// A row of the box: where it lies in shared memory, before swizzling, and which of its bytes lie inside the tensor.
struct Row {
  u32 shared_offset;
  u64 global;  // address of the row's first element, which may lie outside
  u32 begin, end;
};

template <class F>
void for_each_row(const Copy& copy, F f) {
  const TensorMapFields& m = copy.map;
  const u32 element = static_cast<u32>(element_size(m.type)), row_bytes = m.box[0] * element;
  for (u32 row = 0; row < copy.bytes / row_bytes; row++) {
    u64 global = m.address;
    bool inside = true;
    for (u32 d = 1, rest = row; d < m.rank; d++) {
      const i64 x = copy.coordinate[d] + static_cast<i64>(rest % m.box[d]);
      rest /= m.box[d];
      inside = inside && x >= 0 && x < static_cast<i64>(m.size[d]);
      global += static_cast<u64>(x) * m.stride[d];
    }
    const i64 first = copy.coordinate[0], limit = static_cast<i64>(m.size[0]);
    const i64 begin = std::clamp<i64>(-first, 0, m.box[0]), end = std::clamp<i64>(limit - first, 0, m.box[0]);
    global += static_cast<u64>(first) * element;
    if (inside && begin < end)
      f(Row{row * row_bytes, global, static_cast<u32>(begin) * element, static_cast<u32>(end) * element});
    else
      f(Row{row * row_bytes, global, 0, 0});
  }
}

// Calls f(address, bytes) for what the copy touches of global memory.
template <class F>
void for_each_global_range(const Copy& copy, F f) {
  if (copy.kind != Copy::Kind::tensor_load && copy.kind != Copy::Kind::tensor_store) return f(copy.global, copy.bytes);
  for_each_row(copy, [&](const Row& row) {
    if (row.end > row.begin) f(row.global + row.begin, row.end - row.begin);
  });
}

// The row's bytes in shared memory, in pieces of 16: f(offset in the row, pointer).
template <class F>
void for_each_unit(Cta& cta, u32 shared, const Copy& copy, const Row& row, F f) {
  const u32 row_bytes = copy.map.box[0] * static_cast<u32>(element_size(copy.map.type));
  for (u32 b = 0; b < row_bytes; b += 16)
    f(b, cta.grid.shared_bytes(cta, swizzled(shared + row.shared_offset + b, copy.map.swizzle)));
}

void check_global(Thread& t, const Copy& copy, u64 address, u32 bytes, ActorId actor, u32 time, bool write) {
  Grid& grid = t.cta->grid;
  Allocation* buffer = grid.memory.find(address, bytes);
  if (!buffer)
    fail(errors::GlobalOutOfBounds{.instruction = copy.instruction,
                                   .where = grid.where(t, copy.at),
                                   .address = std::to_string(address),
                                   .bytes = bytes,
                                   .nearest = grid.memory.nearest(address)});
  const bool generic = copy.kind == Copy::Kind::cp_async;
  const Access access{.instruction = copy.instruction,
                      .at = copy.at,
                      .issuer = t.actor,
                      .actor = actor,
                      .time = time,
                      .write = write,
                      .atomic = write && copy.add,
                      .async = !generic};
  const Observer self = grid.observer(t);
  AccessCheck(grid, grid.config.rules, access, {&self, 1})(buffer->shadow, shadow_offset(*buffer, address), bytes);
}

void check_shared(Thread& t, const Copy& copy, Cta& cta, u32 address, ActorId actor, u32 time, bool write) {
  Grid& grid = t.cta->grid;
  const bool tensor = copy.map.rank > 0;
  const Access access{.instruction = copy.instruction,
                      .at = copy.at,
                      .issuer = t.actor,
                      .actor = actor,
                      .time = time,
                      .write = write,
                      .async = copy.kind != Copy::Kind::cp_async,
                      .swizzle = static_cast<u8>(tensor ? 1 + static_cast<int>(copy.map.swizzle) : 0)};
  const Observer self = grid.observer(t);
  AccessCheck(grid, grid.config.rules, access, {&self, 1})(cta.shadow, Grid::shared_offset(address), copy.bytes);
}

// Checks the target CTAs of a load, poisons them and puts the copy in flight.
void issue_load(Thread& t, std::unique_ptr<Copy> copy, u32 destination, u32 barrier, u32 cta_mask, u32 alignment) {
  Grid& grid = t.cta->grid;
  grid.shared_cta(t, destination, true, copy->instruction, copy->at);
  grid.check_bounds(t, destination, copy->bytes, alignment, copy->instruction, copy->at);
  grid.shared_cta(t, barrier, true, copy->instruction, copy->at);
  if (cta_mask >> t.cta->cluster.ctas.size())
    invalid(t, copy->instruction, copy->at, "the multicast mask names a CTA that the cluster has not");
  const bool multicast = cta_mask != 0;
  const u32 window = (1u << kRankShift) - 1;
  for (u32 rank = 0; rank < t.cta->cluster.ctas.size(); rank++) {
    if (multicast ? !(cta_mask >> rank & 1) : rank != t.cta->rank) continue;
    const u32 high = rank << kRankShift;
    Mbarrier& b = find_mbarrier(t, (barrier & window) | high, false, true, copy->instruction, copy->at);
    Cta& cta = grid.shared_cta(t, (destination & window) | high, false, copy->instruction, copy->at);
    check_shared(t, *copy, cta, (destination & window) | high, b.actor, kInFlight, true);
    std::memset(grid.shared_bytes(cta, destination), kPoison, copy->bytes);
    copy->targets.push_back({&cta, (destination & window) | high, &b, b.phase});
  }
  const Copy::Target& first = copy->targets.front();
  for_each_global_range(*copy, [&](u64 address, u32 bytes) {
    check_global(t, *copy, address, bytes, first.barrier->actor, first.phase + 1, false);
  });
  grid.stats.copies++;
  grid.copies.in_flight.push_back(std::move(copy));
}

// Checks the source of a store and puts it in flight.
void issue_store(Thread& t, std::unique_ptr<Copy> copy, u32 alignment) {
  Grid& grid = t.cta->grid;
  grid.shared_cta(t, copy->shared, true, copy->instruction, copy->at);
  grid.check_bounds(t, copy->shared, copy->bytes, alignment, copy->instruction, copy->at);
  if (!t.copies.reads) {
    const std::string of = " by a bulk store of thread " + std::to_string(t.tid);
    t.copies.reads = t.cta->new_actor("read" + of);
    t.copies.writes = t.cta->new_actor("write" + of);
  }
  copy->group = t.copies.bulk_groups + 1;
  check_shared(t, *copy, *t.cta, copy->shared, t.copies.reads, copy->group, false);
  for_each_global_range(
      *copy, [&](u64 address, u32 bytes) { check_global(t, *copy, address, bytes, t.copies.writes, copy->group, true); });
  t.copies.bulk_uncommitted++;
  t.copies.last_bulk = copy->at;
  grid.stats.copies++;
  grid.copies.in_flight.push_back(std::move(copy));
}

std::unique_ptr<Copy> tensor_copy(Copy::Kind kind, const u64 (&map)[16], const TensorCoordinates& c,
                                  const char* instruction, Location at) {
  Thread& t = this_thread();
  std::unique_ptr<Copy> copy(new Copy{.kind = kind, .thread = &t, .at = at, .instruction = instruction});
  std::string wrong = decode(map, copy->map);
  if (wrong.empty() && static_cast<int>(copy->map.rank) != c.rank)
    wrong = "the map has rank " + std::to_string(copy->map.rank) + ", the instruction " + std::to_string(c.rank);
  if (!wrong.empty())
    fail(errors::TensorMapInvalid{.instruction = instruction, .where = t.cta->grid.where(t, at), .reason = wrong});
  const i64 start = static_cast<i64>(c.at[0]) * element_size(copy->map.type);
  if (t.cta->grid.config.rules.tma_start_16_bytes && start % 16)
    invalid(t, instruction, at,
            "the innermost start coordinate " + std::to_string(c.at[0]) + " is byte " + std::to_string(start) +
                " of the row, expected a multiple of 16");
  copy->coordinate = c.at;
  copy->bytes = copy->map.box_bytes();
  return copy;
}

void check_bulk_size(Thread& t, const void* global, u32 bytes, const char* instruction, Location at) {
  if (bytes == 0 || bytes % kBulkAlignment)
    invalid(t, instruction, at, std::to_string(bytes) + " bytes, expected a multiple of 16");
  if (reinterpret_cast<std::uintptr_t>(global) % kBulkAlignment)
    invalid(t, instruction, at, "the global address is not a multiple of 16");
}

template <class T>
void add_elements(u8* to, const u8* from, u32 bytes) {
  for (u32 i = 0; i < bytes; i += sizeof(T)) {
    T a, b;
    std::memcpy(&a, to + i, sizeof(T));
    std::memcpy(&b, from + i, sizeof(T));
    if constexpr (requires { a.bits; })
      a = from_float<T>(to_float(a) + to_float(b));
    else
      a = a + b;
    std::memcpy(to + i, &a, sizeof(T));
  }
}

void add(TensorType type, u8* to, const u8* from, u32 bytes) {
  switch (type) {
    case TensorType::f32: return add_elements<float>(to, from, bytes);
    case TensorType::bf16: return add_elements<bf16>(to, from, bytes);
    case TensorType::f16: return add_elements<f16>(to, from, bytes);
    case TensorType::u64:
    case TensorType::s64: return add_elements<u64>(to, from, bytes);
    default: return add_elements<u32>(to, from, bytes);
  }
}

void land(Grid& grid, const Copy& copy, const Copy::Target& target) {
  Cta& cta = *target.cta;
  const std::string where = grid.where(*copy.thread, copy.at);
  Mbarrier& b = *target.barrier;
  if (b.phase != target.phase)
    fail(errors::MbarrierTransactionBytes{.barrier = describe(b),
                                          .where = where,
                                          .phase = target.phase,
                                          .expected = b.expected,
                                          .landed = b.landed,
                                          .reason = "the phase completed before the bytes of this copy had landed"});
  if (copy.kind == Copy::Kind::tensor_load)
    for_each_row(copy, [&](const Row& row) {
      for_each_unit(cta, target.shared, copy, row, [&](u32 at, u8* to) {
        const u32 begin = std::clamp(row.begin, at, at + 16), end = std::clamp(row.end, at, at + 16);
        std::memset(to, 0, 16);
        if (end > begin) std::memcpy(to + (begin - at), reinterpret_cast<const u8*>(row.global) + begin, end - begin);
      });
    });
  else if (copy.kind == Copy::Kind::bulk_load)
    std::memcpy(grid.shared_bytes(cta, target.shared), reinterpret_cast<const u8*>(copy.global), copy.bytes);
  else
    std::memcpy(grid.shared_bytes(cta, target.shared), grid.shared_bytes(*copy.thread->cta, copy.shared), copy.bytes);
  cta.shadow.set_time(Grid::shared_offset(target.shared), copy.bytes, b.actor, target.phase + 1);
  complete_tx(grid, b, copy.bytes, where);
}

// First the source is read, at some later time the destination is written.
bool advance_store(Grid& grid, Copy& copy) {
  Cta& cta = *copy.thread->cta;
  const bool tensor = copy.kind == Copy::Kind::tensor_store;
  if (!copy.source_read) {
    copy.source_read = true;
    copy.data.resize(copy.bytes);
    if (tensor)
      for_each_row(copy, [&](const Row& row) {
        for_each_unit(cta, copy.shared, copy, row,
                      [&](u32 at, const u8* from) { std::memcpy(copy.data.data() + row.shared_offset + at, from, 16); });
      });
    else
      std::memcpy(copy.data.data(), grid.shared_bytes(cta, copy.shared), copy.bytes);
    return false;
  }
  const auto write = [&](u64 address, const u8* from, u32 bytes, TensorType type) {
    u8* to = reinterpret_cast<u8*>(address);
    if (copy.add)
      add(type, to, from, bytes);
    else
      std::memcpy(to, from, bytes);
  };
  if (tensor)
    for_each_row(copy, [&](const Row& row) {
      write(row.global + row.begin, copy.data.data() + row.shared_offset + row.begin, row.end - row.begin, copy.map.type);
    });
  else
    write(copy.global, copy.data.data(), copy.bytes, TensorType::f32);
  return true;
}

void land_cp_async(Grid& grid, const Copy& copy) {
  Cta& cta = *copy.thread->cta;
  u8* to = grid.shared_bytes(cta, copy.shared);
  std::memset(to, 0, copy.bytes);
  if (copy.source_bytes) std::memcpy(to, reinterpret_cast<const u8*>(copy.global), copy.source_bytes);
  cta.shadow.set_time(Grid::shared_offset(copy.shared), copy.bytes, copy.thread->copies.async_actor, copy.group);
}

bool cp_async_landed(const Thread& t, u32 time) {
  const auto& in_flight = t.cta->grid.copies.in_flight;
  return std::none_of(in_flight.begin(), in_flight.end(), [&](const std::unique_ptr<Copy>& copy) {
    return copy->thread == &t && copy->kind == Copy::Kind::cp_async && copy->group <= time;
  });
}

void pay_owed_arrivals(Grid& grid, Thread& t) {
  std::vector<OwedArrival>& owed = t.copies.owed;
  for (std::size_t i = 0; i < owed.size();) {
    if (!cp_async_landed(t, owed[i].time)) {
      i++;
      continue;
    }
    const OwedArrival arrival = owed[i];
    owed.erase(owed.begin() + static_cast<std::ptrdiff_t>(i));
    arrival.barrier->arriving.ordered.raise(t.copies.async_actor, arrival.time);
    arrive(grid, *arrival.barrier, 1, grid.where(t, arrival.at));
  }
}

std::string copies_detail(const Thread& t) { return "copies of its own up to group " + std::to_string(t.wait.value); }

template <class F>
void wait_for_copies(Thread& t, const char* instruction, u32 group, Location at, F done) {
  while (!done()) {
    t.copies.waiting = true;
    t.cta->grid.block(t, {instruction, at, &t, group, &copies_detail});
    t.copies.waiting = false;
  }
}

}  // namespace

// --- bulk and tensor copies ------------------------------------------------------------------------------------------

void cp_async_bulk_tensor_load(u32 destination, const u64 (&map)[16], u32 barrier, const TensorCoordinates& c, u32 cta_mask,
                               const char* instruction, Location at) {
  issue_load(this_thread(), tensor_copy(Copy::Kind::tensor_load, map, c, instruction, at), destination, barrier, cta_mask,
             kTensorAlignment);
}

void cp_async_bulk_tensor_store(const u64 (&map)[16], u32 source, const TensorCoordinates& c, bool add,
                                const char* instruction, Location at) {
  std::unique_ptr<Copy> copy = tensor_copy(Copy::Kind::tensor_store, map, c, instruction, at);
  copy->shared = source;
  copy->add = add;
  issue_store(this_thread(), std::move(copy), kTensorAlignment);
}

void cp_async_bulk_load(u32 destination, const void* source, u32 bytes, u32 barrier, u32 cta_mask, Location at) {
  Thread& t = this_thread();
  constexpr const char* kInstruction = "cp.async.bulk.shared.global";
  check_bulk_size(t, source, bytes, kInstruction, at);
  std::unique_ptr<Copy> copy(new Copy{.kind = Copy::Kind::bulk_load, .thread = &t, .at = at, .instruction = kInstruction});
  copy->global = reinterpret_cast<std::uintptr_t>(source);
  copy->bytes = bytes;
  issue_load(t, std::move(copy), destination, barrier, cta_mask, kBulkAlignment);
}

void cp_async_bulk_store(void* destination, u32 source, u32 bytes, bool add_f32, Location at) {
  Thread& t = this_thread();
  const char* instruction = add_f32 ? "cp.reduce.async.bulk.global.shared.add.f32" : "cp.async.bulk.global.shared";
  check_bulk_size(t, destination, bytes, instruction, at);
  std::unique_ptr<Copy> copy(new Copy{.kind = Copy::Kind::bulk_store, .thread = &t, .at = at, .instruction = instruction});
  copy->global = reinterpret_cast<std::uintptr_t>(destination);
  copy->shared = source;
  copy->bytes = bytes;
  copy->add = add_f32;
  issue_store(t, std::move(copy), kBulkAlignment);
}

void cp_async_bulk_to_peer(u32 destination, u32 source, u32 bytes, u32 barrier, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  constexpr const char* kInstruction = "cp.async.bulk.shared::cluster.shared::cta";
  check_bulk_size(t, nullptr, bytes, kInstruction, at);
  std::unique_ptr<Copy> copy(
      new Copy{.kind = Copy::Kind::bulk_to_peer, .thread = &t, .at = at, .instruction = kInstruction});
  copy->shared = source;
  copy->bytes = bytes;
  grid.shared_cta(t, source, true, kInstruction, at);
  grid.check_bounds(t, source, bytes, kBulkAlignment, kInstruction, at);
  grid.check_bounds(t, destination, bytes, kBulkAlignment, kInstruction, at);
  Cta& peer = grid.shared_cta(t, destination, false, kInstruction, at);
  Mbarrier& b = find_mbarrier(t, barrier, false, true, kInstruction, at);
  if (b.cta != &peer) invalid(t, kInstruction, at, "destination and mbarrier belong to different CTAs");
  check_shared(t, *copy, *t.cta, source, b.actor, b.phase + 1, false);
  check_shared(t, *copy, peer, destination, b.actor, kInFlight, true);
  std::memset(grid.shared_bytes(peer, destination), kPoison, bytes);
  copy->targets.push_back({&peer, destination, &b, b.phase});
  grid.stats.copies++;
  grid.copies.in_flight.push_back(std::move(copy));
}

void cp_async_bulk_commit_group(Location) {
  ThreadCopies& copies = this_thread().copies;
  copies.bulk_groups++;
  copies.bulk_uncommitted = 0;
}

void cp_async_bulk_wait_group(u32 pending, bool read_only, Location at) {
  Thread& t = this_thread();
  const u32 group = t.copies.bulk_groups > pending ? t.copies.bulk_groups - pending : 0;
  wait_for_copies(t, read_only ? "cp.async.bulk.wait_group.read" : "cp.async.bulk.wait_group", group, at, [&] {
    const auto& in_flight = t.cta->grid.copies.in_flight;
    return std::none_of(in_flight.begin(), in_flight.end(), [&](const std::unique_ptr<Copy>& copy) {
      const bool store = copy->kind == Copy::Kind::bulk_store || copy->kind == Copy::Kind::tensor_store;
      return store && copy->thread == &t && copy->group <= group && !(read_only && copy->source_read);
    });
  });
  if (!t.copies.reads || !group) return;
  acquire(t, t.copies.reads, group);
  if (!read_only) acquire(t, t.copies.writes, group);
}

// --- cp.async --------------------------------------------------------------------------------------------------------

void cp_async(u32 destination, const void* source, u32 bytes, u32 source_bytes, const char* instruction, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  const u64 address = reinterpret_cast<std::uintptr_t>(source);
  if (source_bytes > bytes) invalid(t, instruction, at, "more source bytes than the copy has");
  if (source_bytes && address % bytes)
    fail(errors::Misaligned{.instruction = instruction,
                            .where = grid.where(t, at),
                            .address = "global memory, address " + std::to_string(address),
                            .alignment = bytes});
  std::unique_ptr<Copy> copy(new Copy{.kind = Copy::Kind::cp_async, .thread = &t, .at = at, .instruction = instruction});
  if (!t.copies.async_actor) t.copies.async_actor = t.cta->new_actor("cp.async of thread " + std::to_string(t.tid));
  copy->global = address;
  copy->shared = destination;
  copy->bytes = bytes;
  copy->source_bytes = source_bytes;
  copy->group = ++t.copies.async_issued;
  grid.shared_cta(t, destination, true, instruction, at);
  grid.check_bounds(t, destination, bytes, bytes, instruction, at);
  if (source_bytes) check_global(t, *copy, address, source_bytes, t.copies.async_actor, copy->group, false);
  check_shared(t, *copy, *t.cta, destination, t.copies.async_actor, kInFlight, true);
  std::memset(grid.shared_bytes(*t.cta, destination), kPoison, bytes);
  t.copies.last_async = at;
  grid.stats.copies++;
  grid.copies.in_flight.push_back(std::move(copy));
}

void cp_async_commit_group(Location) {
  ThreadCopies& copies = this_thread().copies;
  copies.async_groups.push_back(copies.async_issued);
}

namespace {

void wait_for_cp_async(Thread& t, u32 time, const char* instruction, Location at) {
  wait_for_copies(t, instruction, time, at, [&] { return cp_async_landed(t, time); });
  if (t.copies.async_actor && time) acquire(t, t.copies.async_actor, time);
}

}  // namespace

void cp_async_wait_group(u32 pending, Location at) {
  Thread& t = this_thread();
  const std::vector<u32>& groups = t.copies.async_groups;
  wait_for_cp_async(t, groups.size() > pending ? groups[groups.size() - pending - 1] : 0, "cp.async.wait_group", at);
}

void cp_async_wait_all(Location at) {
  Thread& t = this_thread();
  wait_for_cp_async(t, t.copies.async_issued, "cp.async.wait_all", at);
}

void cp_async_mbarrier_arrive_noinc(u32 barrier, Location at) {
  Thread& t = this_thread();
  Mbarrier& b = find_mbarrier(t, barrier, true, false, "cp.async.mbarrier.arrive.noinc", at);
  t.copies.owed.push_back({&b, t.copies.async_issued, at});
  if (!t.copies.async_actor) t.copies.async_actor = t.cta->new_actor("cp.async of thread " + std::to_string(t.tid));
  pay_owed_arrivals(t.cta->grid, t);
}

// --- for the grid ----------------------------------------------------------------------------------------------------

void complete_copy(Grid& grid, std::size_t index) {
  std::vector<std::unique_ptr<Copy>>& in_flight = grid.copies.in_flight;
  Copy& copy = *in_flight[index];
  Thread& t = *copy.thread;
  const bool store = copy.kind == Copy::Kind::bulk_store || copy.kind == Copy::Kind::tensor_store;
  if (store && !advance_store(grid, copy)) {
    if (t.copies.waiting) grid.wake(t);
    return;
  }
  const std::unique_ptr<Copy> done = std::move(in_flight[index]);
  std::swap(in_flight[index], in_flight.back());
  in_flight.pop_back();
  for (const Copy::Target& target : done->targets) land(grid, *done, target);
  if (done->kind == Copy::Kind::cp_async) {
    land_cp_async(grid, *done);
    pay_owed_arrivals(grid, t);
  }
  if (t.copies.waiting) grid.wake(t);
}

void check_copies_at_exit(Thread& thread) {
  const ThreadCopies& copies = thread.copies;
  const auto in_flight = [&](const char* what, Location at) {
    fail(errors::ExitInFlight{.thread = thread.cta->grid.actor_name(thread.actor), .what = what, .where = name(at)});
  };
  if (copies.bulk_uncommitted) in_flight("a bulk store that was never committed", copies.last_bulk);
  if (copies.reads && time_of(thread.known.ordered, copies.reads) < copies.bulk_groups)
    in_flight("a bulk store that may still read shared memory (no cp.async.bulk.wait_group)", copies.last_bulk);
  const bool owed = !copies.owed.empty() && copies.owed.back().time == copies.async_issued;
  if (copies.async_issued && time_of(thread.known.ordered, copies.async_actor) < copies.async_issued && !owed &&
      !cp_async_landed(thread, copies.async_issued))
    in_flight("a cp.async that nothing waits for", copies.last_async);
}

}  // namespace iso::emu
