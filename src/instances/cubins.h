// The compiled kernels that this build carries, by name.
#pragma once

#include <span>
#include <string_view>

#include "instances/instances.h"

namespace iso {

struct Cubin {
  const char* symbol;
  Architecture architecture;
  const u8 *begin, *end;
};

// Empty in a build without a CUDA compiler.
std::span<const Cubin> embedded_cubins();
// The version of the nvcc that made them; "" if there are none.
const char* cubin_compiler();

// nullptr if this build does not carry it.
const Cubin* find_cubin(std::string_view symbol);

}  // namespace iso
