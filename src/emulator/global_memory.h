// Global memory as the emulator knows it: the buffers that kernels may touch, each with its shadow.
#pragma once

#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "emulator/clock.h"
#include "emulator/shadow.h"

namespace iso::emu {

enum class Contents { initialised, uninitialised };

struct Allocation {
  u64 address, size;
  Shadow shadow;
  // What releases to an address have published, by byte offset: the memory side of acquire and release.
  std::map<u64, Knowledge> published;
};

// Shadow offsets have the alignment of addresses, so that 16-byte units are granules whatever the buffer's start.
inline u64 shadow_offset(const Allocation& a, u64 address) { return address - (a.address & ~u64{15}); }

class GlobalMemory {
 public:
  void add(const void* data, u64 bytes, const std::string& name, Contents contents);

  // The allocation that holds all of [address, address + bytes), or null.
  Allocation* find(u64 address, u64 bytes);
  // For reports: the allocation nearest below or around the address.
  std::string nearest(u64 address) const;
  // Between launches: whatever was done is now the previous grid's work.
  void forget_launch();

 private:
  std::map<u64, std::unique_ptr<Allocation>> allocations_;
  Allocation* last_ = nullptr;
};

}  // namespace iso::emu
