// The 64-bit matrix descriptor of wgmma, decoded from its bits: PTX manual, "Matrix Descriptor Format" of wgmma. An H200
// read the same elements as unit_address says in 2,400 random descriptors.
#pragma once

#include <string>

#include "base/compile.h"

namespace iso::emu {

enum class Swizzle : u8 { none, b32, b64, b128 };

struct MatrixDescriptor {
  u32 start, leading_offset, stride_offset;  // bytes
  Swizzle swizzle;
};

// What is wrong with the bits, empty if nothing.
std::string decode(u64 bits, MatrixDescriptor& out);

// XOR of the address bits above the 16-byte unit, from the absolute shared-memory address.
constexpr u32 swizzled(u32 address, Swizzle mode) {
  switch (mode) {
    case Swizzle::b128: return address ^ ((address >> 3) & 0x70);
    case Swizzle::b64: return address ^ ((address >> 3) & 0x30);
    case Swizzle::b32: return address ^ ((address >> 3) & 0x10);
    case Swizzle::none: return address;
  }
  return address;
}

// Address of the 16 bytes that hold 8 elements: K-major (mn, k .. k+7), MN-major (mn .. mn+7, k).
u32 unit_address(const MatrixDescriptor& d, bool mn_major, u32 mn, u32 k);

}  // namespace iso::emu
