// What the test kernels share.
#pragma once

#include "instr/instr.h"

namespace iso::test {

// Position in a ring of stages. A consumer waits for a full barrier with `phase`, the producer for an empty one with
// phase ^ 1: its first round passes at once.
struct Ring {
  u32 stage = 0, phase = 0;

  ISO_DEVICE void advance(u32 num_stages) {
    if (++stage < num_stages) return;
    stage = 0;
    phase ^= 1;
  }
};

constexpr u32 kSwizzledRow = 128;   // bytes: 64 elements of 16 bits under the 128-byte swizzle
constexpr u32 kSwizzleAtom = 1024;  // 8 such rows

// Operands in tiles whose rows are one swizzle span. K-major: step of 16 elements along k. MN-major: 16 rows further.
ISO_DEVICE u64 k_major(u32 tile, u32 k) {
  return instr::matrix_descriptor(tile + 2 * k, 0, kSwizzleAtom, instr::Swizzle::b128);
}
ISO_DEVICE u64 mn_major(u32 tile, u32 k, u32 next_block = 0) {
  return instr::matrix_descriptor(tile + kSwizzledRow * k, next_block, kSwizzleAtom, instr::Swizzle::b128);
}

}  // namespace iso::test
