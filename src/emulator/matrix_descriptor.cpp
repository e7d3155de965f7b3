#include "emulator/matrix_descriptor.h"

namespace iso::emu {
namespace {

constexpr u64 field(u64 bits, int low, int width) { return bits >> low & ((u64{1} << width) - 1); }

}  // namespace

std::string decode(u64 bits, MatrixDescriptor& out) {
  if (field(bits, 14, 2) || field(bits, 30, 2) || field(bits, 46, 3) || field(bits, 52, 10)) return "reserved bits are set";
  // On an H200 it makes swizzled modes read other elements; tiles aligned to 1024 bytes keep it 0.
  if (field(bits, 49, 3)) return "base_offset is not 0, which the emulator does not model";
  out.start = static_cast<u32>(field(bits, 0, 14) << 4);
  out.leading_offset = static_cast<u32>(field(bits, 16, 14) << 4);
  out.stride_offset = static_cast<u32>(field(bits, 32, 14) << 4);
  static constexpr Swizzle kModes[] = {Swizzle::none, Swizzle::b128, Swizzle::b64, Swizzle::b32};
  out.swizzle = kModes[field(bits, 62, 2)];
  return "";
}

u32 unit_address(const MatrixDescriptor& d, bool mn_major, u32 mn, u32 k) {
  // Elements of 2 bytes in one row of the swizzle pattern.
  static constexpr u32 kRowElements[] = {8, 16, 32, 64};
  const u32 row = kRowElements[static_cast<int>(d.swizzle)];
  u32 offset;
  if (!mn_major)
    offset = mn / 8 * d.stride_offset + mn % 8 * row * 2 + (d.swizzle == Swizzle::none ? k / 8 * d.leading_offset : k * 2);
  else if (d.swizzle == Swizzle::none)
    offset = mn / 8 * d.stride_offset + k / 8 * d.leading_offset + k % 8 * 16;
  else
    offset = mn / row * d.leading_offset + k / 8 * d.stride_offset + k % 8 * row * 2 + mn % row * 2;
  return swizzled(d.start + offset, d.swizzle);
}

}  // namespace iso::emu
