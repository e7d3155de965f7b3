// Runs a batch through the library, with the clock on.
#pragma once

#include <string>

#include "batch.h"

namespace iso::tool {

struct RunOptions {
  bool backward = false;
  std::string backend = "auto";
  int threads = 0;  // 0: one per core
  int splits = 0;   // parts that the keys are cut into, forward; 0: the backend chooses
  int repeat = 3;   // timed calls, after one that is not
};

// Memory for the gradients of a call.
struct Gradients {
  TensorData dq, dk, dv, dsink, dbias;

  Gradients() = default;
  // For every input of `call` that has one; `tensors` then points to them.
  Gradients(const isoflash::Problem& call, isoflash::Backward& tensors);
};

struct RunResult {
  isoflash::Problem call;      // as planned; out and lse point into this struct
  isoflash::Backward tensors;  // all tensors of the call; the gradients are absent without a backward
  TensorData out, lse;
  Gradients gradients;

  std::string kernel;
  i64 visible_pairs = 0;                                      // per query head
  std::size_t forward_workspace = 0, backward_workspace = 0;  // bytes
  double forward_seconds = 0, backward_seconds = 0;           // medians
  double forward_flops = 0, backward_flops = 0;               // useful ones: visible pairs only

  double forward_gflops() const { return forward_flops / forward_seconds * 1e-9; }
  double backward_gflops() const { return backward_flops / backward_seconds * 1e-9; }
};

// Useful FLOPs of a forward: visible pairs only. A backward has 2.5 times as many.
double forward_flops(const isoflash::Problem& call, i64 visible_pairs);

// The tensors of `call` as the backward takes them, without gradients.
isoflash::Backward backward_inputs(const isoflash::Problem& call);

// Throws UsageError with the library's error if it refuses the batch. `path` names the batch's file in messages. The result
// points into `batch`.
RunResult run_batch(const std::string& path, const Batch& batch, const RunOptions& options);

}  // namespace iso::tool
