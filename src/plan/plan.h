// Plan: a validated problem with everything a backend prepared for it. Immutable once made, so that any number of threads
// may run it at the same time, each with its own workspace.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/mask_arrays.h"
#include "core/problem.h"

namespace iso {

class Backend;

// What a backend computed while planning (schedules, uploaded tables); derived types belong to the backends.
struct BackendState {
  virtual ~BackendState() = default;
};

struct Plan {
  Problem problem;
  std::vector<Sequence> sequences;  // one per batch entry
  ForwardTensors layout;            // the problem's tensors, without data
  int num_threads = 0;              // CPU backend; 0 until the backend has chosen
  MaskArrays mask_arrays;           // what the sequences' views point into
  int num_splits = 1;               // parts that the keys are cut into (forward); 0 until the backend has chosen
  i64 visible_pairs = 0;            // over all sequences, per query head (the mean, rounded down); INT64_MAX if more

  const Backend* backend = nullptr;                           // set by backend/registry.cpp, with what follows
  std::string kernel;                                         // e.g. "cpu:avx512_bf16"
  std::size_t forward_workspace = 0, backward_workspace = 0;  // bytes, multiples of 64
  std::unique_ptr<BackendState> state;
};

// The plan without a backend (choose_backend in backend/backend.h gives it one).
Plan make_plan(const Problem& problem, std::vector<Sequence> sequences, MaskArrays mask_arrays,
               const ForwardTensors& layout);

}  // namespace iso
