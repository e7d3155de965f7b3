// Fibers: one per CUDA thread. A fiber runs until it suspends itself; the scheduler decides who runs next.
#pragma once

#include <cstddef>

namespace iso::emu {

// A saved point of execution. context_x86_64.cpp and context_ucontext.cpp each implement these three; the build picks one.
struct Context {
  void* state = nullptr;
};
void prepare_context(Context& context, char* stack, std::size_t size, void (*entry)());
void switch_context(Context& from, Context& to);
void destroy_context(Context& context);

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // The fiber will run function(argument) when it is resumed for the first time; it is finished when that returns.
  void start(void (*function)(void*), void* argument);
  bool started() const { return stack_ != nullptr; }
  bool finished() const { return finished_; }
  // Runs the fiber until it suspends or finishes. To be called outside of any fiber.
  void resume();
  // Goes back to whoever called resume(). To be called inside this fiber.
  void suspend();

 private:
  static void enter();
  void leave(void** shadow_stack);

  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  Context inside_, outside_;
  char* stack_ = nullptr;
  bool finished_ = false;
  const void* outside_bottom_ = nullptr;  // the resumer's stack, for AddressSanitizer
  std::size_t outside_size_ = 0;
};

}  // namespace iso::emu
