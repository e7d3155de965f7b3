// The speed limit that `isoflash bench` compares with: a loop of nothing but the product instruction that a CPU level's
// kernels use, on every thread, with operands in registers.
#pragma once

#include <string>

#include "base/compile.h"

namespace iso::tool {

// One such loop, in a peak_<name>.cpp of its own that is compiled for the instruction and holds nothing else.
struct PeakLoop {
  const char* levels;  // the CPU levels (isoflash_cpu_level_name) whose kernels multiply with the instruction
  bool bf16;           // multiplies bf16; else float32
  const char* instruction;
  double flops_per_round;
  double (*run)(i64 rounds);  // the result depends on every product
};

struct Peak {
  std::string instruction;
  double gflops = 0;  // of all threads together
};

// For the kernels of `level` on bf16 or other elements. The best of five measurements of about 40 ms each: what counts is
// the limit, and whatever else runs on the machine only lowers it.
Peak measure_peak(const std::string& level, bool bf16, int num_threads);

}  // namespace iso::tool
