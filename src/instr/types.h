// Types that both sides of the instruction layer share: plain data and integer arithmetic.
#pragma once

#include "base/compile.h"
#include "base/dtype.h"

namespace iso::instr {

struct alignas(8) U32x2 {
  u32 x, y;
};
struct alignas(16) U32x4 {
  u32 x, y, z, w;
};

// A CUtensorMap. Kernels take it as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
  u64 bits[16];
};

// Buffers and barriers in a kernel's SharedStorage. Their contents are reached by instructions only, through the address
// that smem_u32 gives, so that the emulator sees every access.
template <class T, int kCount>
class SharedArray {
  T elements_[kCount];
};
class alignas(8) SharedBarrier {
  u64 opaque_;
};

// Order of a matrix operand in shared memory: along the reduction, or along its rows (A) or columns (B).
enum class Major { k, mn };

// Swizzle modes, numbered as in the matrix descriptors of wgmma.
enum class Swizzle : u32 { none = 0, b128 = 1, b64 = 2, b32 = 3 };

inline namespace ISO_TARGET {

// PTX manual: wgmma, "Matrix Descriptor Format". K-major with swizzle: groups of 8 rows are stride_bytes apart.
// MN-major: blocks of one swizzle span are leading_bytes apart, groups of 8 along k stride_bytes.
ISO_HOST_DEVICE constexpr u64 matrix_descriptor(u32 address, u32 leading_bytes, u32 stride_bytes, Swizzle swizzle) {
  constexpr u32 kMask = 0x3ffff;
  return static_cast<u64>((address & kMask) >> 4) | static_cast<u64>((leading_bytes & kMask) >> 4) << 16 |
         static_cast<u64>((stride_bytes & kMask) >> 4) << 32 | static_cast<u64>(swizzle) << 62;
}

// A wgmma accumulator m64nN: element i of a thread is in this row and column of the 64 x N tile. Each thread holds two
// rows, 8 apart, and pairs of neighbouring columns.
ISO_HOST_DEVICE constexpr int accumulator_row(int thread, int i) {
  return thread % 128 / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
ISO_HOST_DEVICE constexpr int accumulator_column(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

}  // namespace ISO_TARGET
}  // namespace iso::instr
