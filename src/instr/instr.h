// The instruction layer: the only instructions a kernel may use, one function per instruction, named as the PTX manual
// names it. nvcc compiles the real instructions (ptx/), any other compiler calls into the emulator (emu/). This file and
// base/compile.h hold the only switches; signatures.inc keeps the two sides alike.
#pragma once

#include "instr/types.h"

#if defined(__CUDACC__)
#include "instr/ptx/ptx.h"
#else
#include "instr/emu/emu.h"
#endif

namespace iso::instr {
#include "instr/signatures.inc"
}  // namespace iso::instr
