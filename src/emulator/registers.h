// setmaxnreg: warps hand registers to the CTA's pool and take them from it.
#pragma once

#include <vector>

#include "base/compile.h"
#include "emulator/location.h"

namespace iso::emu {

struct Thread;

// Holds what setmaxnreg.dec released, in registers. The pool of a CTA starts empty: an H200 whose kernel had 168 registers
// in 384 threads gave 24 + 240 + 240 but waited for ever at 32 + 240 + 240.
struct RegisterPool {
  u32 free = 0;
  std::vector<Thread*> waiting;
  std::vector<std::vector<u32>> requests;  // per warp: every value asked for, in order
};

void setmaxnreg(u32 registers, bool increase, Location at);

}  // namespace iso::emu
