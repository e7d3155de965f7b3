// For processors without a switch of their own: POSIX contexts, which make a system call per switch.
#include <ucontext.h>

#include "emulator/fiber.h"

namespace iso::emu {
namespace {

ucontext_t& posix(Context& context) {
  if (!context.state) context.state = new ucontext_t;
  return *static_cast<ucontext_t*>(context.state);
}

}  // namespace

void prepare_context(Context& context, char* stack, std::size_t size, void (*entry)()) {
  ucontext_t& c = posix(context);
  getcontext(&c);
  c.uc_stack.ss_sp = stack;
  c.uc_stack.ss_size = size;
  c.uc_link = nullptr;
  makecontext(&c, entry, 0);
}

void switch_context(Context& from, Context& to) { swapcontext(&posix(from), &posix(to)); }

void destroy_context(Context& context) {
  delete static_cast<ucontext_t*>(context.state);
  context.state = nullptr;
}

}  // namespace iso::emu
