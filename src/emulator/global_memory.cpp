#include "emulator/global_memory.h"

#include <cstdint>

namespace iso::emu {

void GlobalMemory::add(const void* data, u64 bytes, const std::string& name, Contents contents) {
  const u64 address = reinterpret_cast<std::uintptr_t>(data);
  Shadow shadow("global memory `" + name + "`", bytes + address % 16, true, contents == Contents::initialised);
  allocations_[address] = std::unique_ptr<Allocation>(new Allocation{address, bytes, std::move(shadow), {}});
  last_ = nullptr;
}

Allocation* GlobalMemory::find(u64 address, u64 bytes) {
  const auto holds = [&](const Allocation& a) { return address >= a.address && address + bytes <= a.address + a.size; };
  if (last_ && holds(*last_)) return last_;
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  Allocation& found = *std::prev(next)->second;
  if (!holds(found)) return nullptr;
  return last_ = &found;
}

std::string GlobalMemory::nearest(u64 address) const {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return "below every buffer";
  const Allocation& a = *std::prev(next)->second;
  return "byte " + std::to_string(address - a.address) + " of " + a.shadow.space() + ", which has " +
         std::to_string(a.size);
}

void GlobalMemory::forget_launch() {
  for (auto& [address, allocation] : allocations_) {
    allocation->shadow.forget_launch();
    allocation->published.clear();
  }
}

}  // namespace iso::emu
