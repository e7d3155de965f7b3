// Tensor maps: what the copy engine (TMA) needs to know of a tensor in global memory and of the boxes that it copies.
#pragma once

#include "base/dtype.h"
#include "cuda/driver.h"
#include "kernels/params.h"

namespace iso::cuda {

using instr::TensorMap;

// Axes from the innermost (stride 1) outwards; strides in elements.
struct TensorMapSpec {
  const char* tensor = "";  // name for errors
  DType dtype = DType::bf16;
  i32 rank = 1;  // 1 to 5
  const void* data = nullptr;
  i64 shape[5] = {1, 1, 1, 1, 1};
  i64 strides[5] = {1, 1, 1, 1, 1};
  i32 box[5] = {1, 1, 1, 1, 1};
  i32 swizzle_bytes = 0;  // 0, 32, 64 or 128; then the box's innermost axis is at most that wide
};

// Elements outside the tensor read as zeros and are not written. Errors: TENSOR_MAP_REFUSED.
Expected<TensorMap> encode_tensor_map(const Driver& driver, const TensorMapSpec& spec);

}  // namespace iso::cuda
