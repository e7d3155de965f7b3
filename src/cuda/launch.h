// Launching a loaded kernel. A kernel has one argument, its Params, passed by value.
#pragma once

#include "cuda/cubin.h"

namespace iso::cuda {

struct LaunchShape {
  i64 grid_x = 1, grid_y = 1, grid_z = 1;  // CTAs; at most 2^31 - 1, 65535, 65535
  i32 cluster_x = 1;                       // CTAs of a cluster; divides grid_x
  // Programmatic dependent launch: the kernel may start while the one before it in the stream is ending, and waits for its
  // results with griddepcontrol.wait.
  bool overlaps_previous = false;
};

// Queues the kernel in `stream`, in the current context (see ScopedContext). An empty grid queues nothing. Error
// LAUNCH_FAILED.
Expected<void> launch(const Driver& driver, const LoadedKernel& kernel, const LaunchShape& shape, Stream stream,
                      const void* params);

}  // namespace iso::cuda
