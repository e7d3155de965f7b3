// Runs a batch through the library, with the clock on.
#pragma once

#include <string>

#include "batch.h"

namespace iso::tool {

struct RunOptions {
  bool backward = false;
  std::string backend = "auto";
  int threads = 0;  // 0: one per core
  int repeat = 3;   // timed calls, after one that is not
};

struct RunResult {
  isoflash::Problem call;      // as planned; out and lse point into this struct
  isoflash::Backward tensors;  // all tensors of the call; the gradients are absent without a backward
  TensorData out, lse, dq, dk, dv;

  std::string kernel;
  i64 visible_pairs = 0;                                      // per query head
  std::size_t forward_workspace = 0, backward_workspace = 0;  // bytes
  double forward_seconds = 0, backward_seconds = 0;           // medians
  double forward_flops = 0, backward_flops = 0;               // useful ones: visible pairs only

  double forward_gflops() const { return forward_flops / forward_seconds * 1e-9; }
  double backward_gflops() const { return backward_flops / backward_seconds * 1e-9; }
};

// Throws UsageError with the library's error if it refuses the batch. `path` names the batch's file in messages. The result
// points into `batch`.
RunResult run_batch(const std::string& path, const Batch& batch, const RunOptions& options);

}  // namespace iso::tool
