// Ordinary loads and stores, atomics and fences of a thread.
#pragma once

#include <map>
#include <utility>

#include "emulator/clock.h"
#include "emulator/location.h"

namespace iso::emu {

struct Thread;

// The memory model's fences, per thread: what was known at the last fence.acq_rel, and what relaxed loads have seen that
// the next one makes known.
struct ThreadAtomics {
  Knowledge released;
  KnowledgeBuilder seen;
  bool has_released = false, has_seen = false;
};

void load_shared(u32 address, void* value, u32 bytes, const char* instruction, Location at);
void store_shared(u32 address, const void* value, u32 bytes, const char* instruction, Location at);
void load_shared_cluster(u32 address, void* value, u32 bytes, const char* instruction, Location at);
void store_shared_cluster(u32 address, const void* value, u32 bytes, const char* instruction, Location at);
u32 mapa(u32 address, u32 rank, Location at);
void ldmatrix(u32 address, u32* registers, int matrices, bool transposed, Location at);
void stmatrix(u32 address, const u32* registers, int matrices, bool transposed, Location at);

void load_global(const void* address, void* value, u32 bytes, const char* instruction, Location at);
void store_global(void* address, const void* value, u32 bytes, const char* instruction, Location at);

// For vector forms that consist of atomics of 4 bytes.
void check_alignment(const void* address, u32 alignment, const char* instruction, Location at);

enum class Order { relaxed, acquire, release, acq_rel };
// Atomic accesses to 4 bytes of global memory at gpu scope. Update: old value in, new value out.
u32 atomic_load(const void* address, Order order, const char* instruction, Location at);
void atomic_store(void* address, u32 value, Order order, const char* instruction, Location at);
u32 atomic_update(void* address, u32 operand, u32 compare, u32 (*update)(u32 old, u32 operand, u32 compare), Order order,
                  const char* instruction, Location at);

enum class FenceSpace { all, shared, global };
void fence_proxy_async(FenceSpace space, Location at);
void fence_mbarrier_init(Location at);
void fence_acq_rel(Location at);
void griddepcontrol_wait(Location at);
void griddepcontrol_launch_dependents(Location at);

}  // namespace iso::emu
