#include "emulator/fiber.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <vector>

// Present only in programs built with AddressSanitizer, which must be told of every change of stack.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** shadow_stack, const void* bottom, std::size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* shadow_stack, const void** bottom, std::size_t* size);
}

namespace iso::emu {
namespace {

// Mapped lazily by the kernel: a fiber costs the pages it touches. Kernels keep their arrays in registers, so 128 KiB
// is far more than they need.
constexpr std::size_t kStackSize = 128 * 1024;

thread_local Fiber* entering = nullptr;

class StackPool {
 public:
  ~StackPool() {
    for (char* stack : free_) munmap(stack, kStackSize);
  }
  char* take() {
    if (!free_.empty()) {
      char* stack = free_.back();
      free_.pop_back();
      return stack;
    }
    void* stack = mmap(nullptr, kStackSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::bad_alloc();
    return static_cast<char*>(stack);
  }
  void give(char* stack) { free_.push_back(stack); }

 private:
  std::vector<char*> free_;
};

StackPool& stacks() {
  static thread_local StackPool pool;
  return pool;
}

}  // namespace

Fiber::~Fiber() {
  destroy_context(inside_);
  destroy_context(outside_);
  if (stack_) stacks().give(stack_);
}

void Fiber::start(void (*function)(void*), void* argument) {
  function_ = function;
  argument_ = argument;
  stack_ = stacks().take();
  prepare_context(inside_, stack_, kStackSize, &Fiber::enter);
}

void Fiber::enter() {
  Fiber* fiber = entering;
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(nullptr, &fiber->outside_bottom_, &fiber->outside_size_);
  fiber->function_(fiber->argument_);
  fiber->finished_ = true;
  fiber->leave(nullptr);  // a null place to save it: AddressSanitizer frees the fiber's shadow stack
  std::abort();           // a finished fiber is never resumed
}

void Fiber::resume() {
  entering = this;
  void* shadow_stack = nullptr;
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&shadow_stack, stack_, kStackSize);
  switch_context(outside_, inside_);
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(shadow_stack, nullptr, nullptr);
}

void Fiber::leave(void** shadow_stack) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(shadow_stack, outside_bottom_, outside_size_);
  switch_context(inside_, outside_);
}

void Fiber::suspend() {
  void* shadow_stack = nullptr;
  leave(&shadow_stack);
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(shadow_stack, &outside_bottom_, &outside_size_);
}

}  // namespace iso::emu
