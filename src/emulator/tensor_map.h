// Tensor maps, 128 opaque bytes to a kernel. The bits are those that cuTensorMapEncodeTiled of driver 13.0 writes (read off
// by varying one argument at a time), so a map made by a driver decodes here as well.
#pragma once

#include <string>

#include "base/compile.h"
#include "emulator/matrix_descriptor.h"

namespace iso::emu {

// Values of CUtensorMapDataType.
enum class TensorType : u32 { u8 = 0, u16 = 1, u32 = 2, s32 = 3, u64 = 4, s64 = 5, f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };
int element_size(TensorType type);

struct TensorMapFields {
  u64 address = 0;
  TensorType type = TensorType::bf16;
  u32 rank = 0;
  u64 size[5] = {};
  u64 stride[5] = {};  // bytes; stride[0] is the element size
  u32 box[5] = {};
  u32 element_stride[5] = {};
  Swizzle swizzle = Swizzle::none;
  bool nan_fill = false;
  u32 interleave = 0;

  u32 box_bytes() const;
};

// Encodes like cuTensorMapEncodeTiled without interleave. Returns what the driver would refuse, empty if nothing.
std::string encode(const TensorMapFields& fields, u64 (&bits)[16]);
// Returns what is wrong with the bits, empty if nothing.
std::string decode(const u64 (&bits)[16], TensorMapFields& out);

}  // namespace iso::emu
