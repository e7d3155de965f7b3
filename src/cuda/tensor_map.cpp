#include "cuda/tensor_map.h"

#include <fmt/format.h>

#include <optional>

namespace iso::cuda {
namespace {

constexpr i64 kMaxExtent = i64{1} << 32, kMaxStrideBytes = i64{1} << 40;
constexpr i32 kMaxBox = 256;

struct Fault {
  std::string what, expected;
};

i32 data_type(DType dtype) {
  return dtype == DType::bf16 ? kTensorMapBf16 : dtype == DType::f16 ? kTensorMapF16 : kTensorMapF32;
}

// The driver answers every mistake with "invalid argument"; this says which.
std::optional<Fault> find_fault(const TensorMapSpec& spec) {
  const i64 size = dtype_size(spec.dtype);
  if (spec.dtype != DType::bf16 && spec.dtype != DType::f16 && spec.dtype != DType::f32)
    return Fault{fmt::format("its dtype is {}", dtype_name(spec.dtype)), "bfloat16, float16 or float32"};
  if (spec.rank < 1 || spec.rank > 5) return Fault{fmt::format("it has {} axes", spec.rank), "1 to 5"};
  if (reinterpret_cast<std::uintptr_t>(spec.data) % 16 != 0)
    return Fault{fmt::format("its address is {}", spec.data), "a multiple of 16"};
  if (spec.strides[0] != 1) return Fault{fmt::format("the innermost axis has stride {}", spec.strides[0]), "1"};
  if (spec.swizzle_bytes != 0 && spec.swizzle_bytes != 32 && spec.swizzle_bytes != 64 && spec.swizzle_bytes != 128)
    return Fault{fmt::format("the swizzle spans {} bytes", spec.swizzle_bytes), "0, 32, 64 or 128"};
  for (i32 axis = 0; axis < spec.rank; ++axis) {
    if (spec.shape[axis] < 1 || spec.shape[axis] > kMaxExtent)
      return Fault{fmt::format("axis {} from the innermost has extent {}", axis, spec.shape[axis]), "1 to 2^32"};
    if (spec.box[axis] < 1 || spec.box[axis] > kMaxBox)
      return Fault{fmt::format("the box has extent {} on axis {}", spec.box[axis], axis), "1 to 256"};
    const i64 stride = spec.strides[axis];
    if (axis > 0 && (stride < 0 || stride >= kMaxStrideBytes / size || stride * size % 16 != 0))
      return Fault{fmt::format("axis {} from the innermost has stride {} elements of {} bytes", axis, stride, size),
                   "a multiple of 16 bytes from 0 to below 2^40"};
  }
  const i64 box_bytes = spec.box[0] * size;
  if (box_bytes % 16 != 0) return Fault{fmt::format("the box is {} bytes wide", box_bytes), "a multiple of 16"};
  if (spec.swizzle_bytes != 0 && box_bytes > spec.swizzle_bytes)
    return Fault{fmt::format("the box is {} bytes wide", box_bytes),
                 fmt::format("at most the swizzle's {}", spec.swizzle_bytes)};
  return std::nullopt;
}

}  // namespace

Expected<TensorMap> encode_tensor_map(const Driver& driver, const TensorMapSpec& spec) {
  const auto refuse = [&](Fault fault) {
    return raise(errors::TensorMapRefused{
        .tensor = spec.tensor, .what = std::move(fault.what), .expected = std::move(fault.expected)});
  };
  if (auto fault = find_fault(spec)) return refuse(*std::move(fault));

  u64 shape[5], stride_bytes[5];
  u32 box[5], element_strides[5];
  for (i32 axis = 0; axis < spec.rank; ++axis) {
    shape[axis] = static_cast<u64>(spec.shape[axis]);
    stride_bytes[axis] = static_cast<u64>(spec.strides[axis] * dtype_size(spec.dtype));
    box[axis] = static_cast<u32>(spec.box[axis]);
    element_strides[axis] = 1;
  }
  // The driver's numbers for 32, 64 and 128 bytes are 1, 2 and 3.
  const i32 swizzle = spec.swizzle_bytes == 0 ? 0 : __builtin_ctz(static_cast<u32>(spec.swizzle_bytes)) - 4;
  TensorMap map{};
  const Result result = driver->tensor_map_encode_tiled(
      &map, data_type(spec.dtype), static_cast<u32>(spec.rank), const_cast<void*>(spec.data), shape, stride_bytes + 1, box,
      element_strides, /*interleave=*/0, swizzle, kTensorMapL2Bytes256, /*out_of_bounds_fill=*/0);
  if (result != kSuccess) return refuse({"the driver says " + driver.error_text(result), "a tensor and box it accepts"});
  return map;
}

}  // namespace iso::cuda
