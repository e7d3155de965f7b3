// One tensor descriptor: what can be wrong with it alone, and with its memory when a call runs.
#pragma once

#include <cstdint>
#include <string>

#include "core/problem.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

// Bytes that the elements of a tensor span; empty without elements.
struct AddressRange {
  std::uintptr_t begin = 0, end = 0;
};
AddressRange address_range(const Tensor& t);

bool has_elements(const Tensor& t);

// "(2, 10, 4, 64)", "cuda:0"
std::string shape_text(const Tensor& t);
std::string strides_text(const Tensor& t);
std::string device_text(Device device);

// The descriptor as a Tensor whose sizes cannot overflow: rank, extents, dtype, device and the span of the strides are
// checked. One that is not given (rank 0) stays so.
Expected<Tensor> read_tensor(const isoflash_tensor& descriptor, const char* name);

// Memory is there and aligned to the element size, if there are elements.
Expected<void> check_memory(const Tensor& t, const char* name);

// A given int32 tensor in host memory, ready to be read.
Expected<Tensor> read_index_tensor(const isoflash_tensor& descriptor, const char* name);

}  // namespace iso
