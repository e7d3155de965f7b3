#include "emulator/memory_instructions.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "emulator/machine.h"

namespace iso::emu {
namespace {

u64 address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

std::string hex(u64 address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", address);
  return text;
}

// The buffer that holds the bytes; a fault if none does or the address is misaligned.
Allocation& global_buffer(Thread& t, const void* p, u32 bytes, const char* instruction, Location at) {
  Grid& grid = t.cta->grid;
  const u64 address = address_of(p);
  if (address % bytes)
    fail(errors::Misaligned{.instruction = instruction,
                            .where = grid.where(t, at),
                            .address = "global memory, address " + hex(address),
                            .alignment = bytes});
  Allocation* buffer = grid.memory.find(address, bytes);
  if (!buffer)
    fail(errors::GlobalOutOfBounds{.instruction = instruction,
                                   .where = grid.where(t, at),
                                   .address = hex(address),
                                   .bytes = bytes,
                                   .nearest = grid.memory.nearest(address)});
  return *buffer;
}

void access_global(Thread& t, const void* p, u32 bytes, bool write, bool atomic, const char* instruction, Location at) {
  Grid& grid = t.cta->grid;
  Allocation& buffer = global_buffer(t, p, bytes, instruction, at);
  const Access access{.instruction = instruction,
                      .at = at,
                      .issuer = t.actor,
                      .actor = t.actor,
                      .time = t.time,
                      .write = write,
                      .atomic = atomic};
  const Observer self = grid.observer(t);
  AccessCheck(grid, grid.config.rules, access, {&self, 1})(buffer.shadow, shadow_offset(buffer, address_of(p)), bytes);
  if (write) grid.progress();
}

struct Matrices {
  bool transposed;
  int count;
};

u64 key(const Matrices& m) { return static_cast<u64>(m.count) << 1 | m.transposed; }
Matrices matrices(u64 key) { return {(key & 1) != 0, static_cast<int>(key >> 1)}; }

// For each 8x8 matrix, lane 8 m + r gives the address of row r; lane l holds two elements of each matrix: row l / 4,
// columns 2 (l % 4) and the next, or with .trans the same of the transposed matrix.
template <bool kStore>
void move_matrices(Thread& last, Rendezvous& r) {
  Grid& grid = last.cta->grid;
  const Matrices m = matrices(r.key);
  const u32 first = last.warp() * kWarpSize;
  for (int matrix = 0; matrix < m.count; matrix++) {
    u16 elements[8][8];
    u8* rows[8];
    for (int row = 0; row < 8; row++) {
      const int lane = matrix * 8 + row;
      const u32 address = static_cast<u32>(r.in[lane]);
      grid.access_shared(last.cta->threads[first + lane], address, 16, kStore, r.instruction, r.at);
      rows[row] = grid.shared_bytes(*last.cta, address);
      std::memcpy(elements[row], rows[row], 16);
    }
    for (u32 lane = 0; lane < kWarpSize; lane++) {
      u32& held = r.registers[lane][matrix];
      for (u32 half = 0; half < 2; half++) {
        const u32 a = lane / 4, b = 2 * (lane % 4) + half;
        u16& element = m.transposed ? elements[b][a] : elements[a][b];
        if (kStore)
          element = static_cast<u16>(held >> 16 * half);
        else
          held = (held & ~(0xffffu << 16 * half)) | static_cast<u32>(element) << 16 * half;
      }
    }
    if (kStore)
      for (int row = 0; row < 8; row++) std::memcpy(rows[row], elements[row], 16);
  }
}

void publish(Thread& t, Allocation& buffer, u64 offset, bool releases, bool replaces) {
  KnowledgeBuilder builder;
  if (!replaces) builder.join(buffer.published[offset]);
  if (releases)
    release(t, builder);
  else if (t.atomics.has_released)
    builder.join(t.atomics.released);
  buffer.published[offset] = builder.snapshot();
}

void observe(Thread& t, Allocation& buffer, u64 offset, bool acquires) {
  const auto found = buffer.published.find(offset);
  if (found == buffer.published.end()) return;
  if (acquires) return acquire(t, found->second);
  t.atomics.seen.join(found->second);
  t.atomics.has_seen = true;
}

}  // namespace

void load_shared(u32 address, void* value, u32 bytes, const char* instruction, Location at) {
  Thread& t = this_thread();
  t.cta->grid.access_shared(t, address, bytes, false, instruction, at);
  std::memcpy(value, t.cta->grid.shared_bytes(*t.cta, address), bytes);
}

void store_shared(u32 address, const void* value, u32 bytes, const char* instruction, Location at) {
  Thread& t = this_thread();
  t.cta->grid.access_shared(t, address, bytes, true, instruction, at);
  std::memcpy(t.cta->grid.shared_bytes(*t.cta, address), value, bytes);
}

void load_shared_cluster(u32 address, void* value, u32 bytes, const char* instruction, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  grid.access_shared(t, address, bytes, false, instruction, at, false);
  std::memcpy(value, grid.shared_bytes(grid.shared_cta(t, address, false, instruction, at), address), bytes);
}

void store_shared_cluster(u32 address, const void* value, u32 bytes, const char* instruction, Location at) {
  Thread& t = this_thread();
  Grid& grid = t.cta->grid;
  grid.access_shared(t, address, bytes, true, instruction, at, false);
  std::memcpy(grid.shared_bytes(grid.shared_cta(t, address, false, instruction, at), address), value, bytes);
}

u32 mapa(u32 address, u32 rank, Location at) {
  Thread& t = this_thread();
  if (rank >= t.cta->cluster.ctas.size())
    fail(errors::WrongSharedWindow{.instruction = "mapa",
                                   .where = t.cta->grid.where(t, at),
                                   .rank = rank,
                                   .own_rank = t.cta->rank,
                                   .cluster_size = t.cta->cluster.ctas.size()});
  return (address & ((1u << kRankShift) - 1)) | rank << kRankShift;
}

void ldmatrix(u32 address, u32* registers, int count, bool transposed, Location at) {
  warp_rendezvous("ldmatrix", key({transposed, count}), address, registers, at, &move_matrices<false>);
}

void stmatrix(u32 address, const u32* registers, int count, bool transposed, Location at) {
  warp_rendezvous("stmatrix", key({transposed, count}), address, const_cast<u32*>(registers), at, &move_matrices<true>);
}

void load_global(const void* address, void* value, u32 bytes, const char* instruction, Location at) {
  access_global(this_thread(), address, bytes, false, false, instruction, at);
  std::memcpy(value, address, bytes);
}

void store_global(void* address, const void* value, u32 bytes, const char* instruction, Location at) {
  access_global(this_thread(), address, bytes, true, false, instruction, at);
  std::memcpy(address, value, bytes);
}

void check_alignment(const void* address, u32 alignment, const char* instruction, Location at) {
  global_buffer(this_thread(), address, alignment, instruction, at);
}

u32 atomic_load(const void* address, Order order, const char* instruction, Location at) {
  Thread& t = this_thread();
  t.cta->grid.poll(t);  // kernels ask in loops
  access_global(t, address, 4, false, true, instruction, at);
  Allocation& buffer = global_buffer(t, address, 4, instruction, at);
  observe(t, buffer, address_of(address) - buffer.address, order == Order::acquire);
  u32 value;
  std::memcpy(&value, address, 4);
  return value;
}

void atomic_store(void* address, u32 value, Order order, const char* instruction, Location at) {
  Thread& t = this_thread();
  access_global(t, address, 4, true, true, instruction, at);
  Allocation& buffer = global_buffer(t, address, 4, instruction, at);
  publish(t, buffer, address_of(address) - buffer.address, order == Order::release, true);
  std::memcpy(address, &value, 4);
}

u32 atomic_update(void* address, u32 operand, u32 compare, u32 (*update)(u32, u32, u32), Order order,
                  const char* instruction, Location at) {
  Thread& t = this_thread();
  access_global(t, address, 4, true, true, instruction, at);
  Allocation& buffer = global_buffer(t, address, 4, instruction, at);
  const u64 offset = address_of(address) - buffer.address;
  observe(t, buffer, offset, order == Order::acquire || order == Order::acq_rel);
  publish(t, buffer, offset, order == Order::release || order == Order::acq_rel, false);
  u32 old;
  std::memcpy(&old, address, 4);
  const u32 changed = update(old, operand, compare);
  std::memcpy(address, &changed, 4);
  if (changed == old) t.cta->grid.poll(t);  // a compare-and-swap that failed will be tried again
  return old;
}

void fence_proxy_async(FenceSpace space, Location) {
  Thread& t = this_thread();
  ClockMemo& clocks = t.cta->grid.clocks;
  const ClockRef mine = clocks.raise(t.known.ordered, t.actor, t.time);
  if (space != FenceSpace::global) {
    t.known.async_shared = clocks.join(t.known.async_shared, mine);
    publish_mbarriers(t);
  }
  if (space != FenceSpace::shared) t.known.async_global = clocks.join(t.known.async_global, mine);
  t.time++;
}

void fence_mbarrier_init(Location) { publish_mbarriers(this_thread()); }

void fence_acq_rel(Location) {
  Thread& t = this_thread();
  if (t.atomics.has_seen) acquire(t, t.atomics.seen.snapshot());
  KnowledgeBuilder builder;
  release(t, builder);
  t.atomics.released = builder.snapshot();
  t.atomics.has_released = true;
}

void griddepcontrol_wait(Location) { this_thread().knows_previous_grid = true; }

void griddepcontrol_launch_dependents(Location) {}  // when the next grid starts is up to the host's launch

}  // namespace iso::emu
