// Where the checks of this folder run kernels: in the emulator or on a GPU.
#pragma once

#include <cstddef>
#include <string>

#include "base/compile.h"

namespace iso::test {

class Machine {
 public:
  virtual ~Machine() = default;
  // Memory that kernels may use. `data`: its content; nullptr: none yet, a kernel writes it first. Lives until clear().
  virtual void* upload(const void* data, std::size_t bytes, const std::string& name) = 0;
  virtual void download(void* data, const void* from, std::size_t bytes) = 0;
  // Runs an instance of src/instances with `grid` CTAs to its end. Returns what went wrong, empty if nothing.
  virtual std::string run(const std::string& kernel, const std::string& variant, i64 grid, const void* params) = 0;
  virtual void clear() = 0;
};

}  // namespace iso::test
