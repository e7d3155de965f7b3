// The test kernels with their data and float64 references: run once with a launch configuration, get the worst error.
#pragma once

#include <string>
#include <vector>

#include "support.h"

namespace iso::test {

struct KernelResult {
  Expected<emu::LaunchStats> launch;
  double error = 0;  // relative to the largest value of each output; infinite for NaN
};

struct KernelRun {
  std::string name;
  // Adds the kernel's grid, threads and shared memory to a configuration that holds seed and mutation.
  std::function<KernelResult(emu::LaunchConfig)> run;
  double tolerance;
};

// Sizes: more tiles than stages, so that every stage is reused and every release matters.
KernelRun gemm_run(u32 m, u32 n, u32 k);
KernelRun attention_forward_run(u32 num_queries, u32 num_keys);
KernelRun attention_backward_run(u32 num_queries, u32 num_keys);
// Other protocols: clusters with multicast, cp.async with ordinary and asynchronous arrivals, CTAs that hand over in order.
KernelRun multicast_run();
KernelRun cp_async_run();
KernelRun ordered_sum_run();

std::vector<KernelRun> all_small_runs();

}  // namespace iso::test
