#include <cstdint>

#include "emulator/fiber.h"

extern "C" void iso_emu_switch(void** save, void* load);

namespace iso::emu {

void prepare_context(Context& context, char* stack, std::size_t size, void (*entry)()) {
  // What iso_emu_switch pops: six registers and the return address; the ABI wants rsp = 16n + 8 when entry begins.
  constexpr int kRegisters = 6;
  void** top = reinterpret_cast<void**>((reinterpret_cast<std::uintptr_t>(stack) + size) & ~std::uintptr_t{15});
  *--top = nullptr;  // the return address of entry, which never returns: unwinders stop here
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kRegisters; i++) *--top = nullptr;
  context.state = top;
}

void switch_context(Context& from, Context& to) { iso_emu_switch(&from.state, to.state); }

void destroy_context(Context& context) { context.state = nullptr; }

}  // namespace iso::emu
