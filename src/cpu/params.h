// What the host part of the CPU backend hands to a level's kernels: plain data only. A level is compiled with its own
// instruction set, so nothing that could leave a shared inline function behind (the standard library) crosses here.
#pragma once

#include "core/problem.h"

namespace iso::cpu {

// Runs task(context, item, worker) for every item in [0, count), each once, on worker threads 0..num_workers-1.
struct Parallel {
  int num_workers = 1;
  void* pool = nullptr;
  void (*run)(void* pool, i64 count, void (*task)(void* context, i64 item, int worker), void* context) = nullptr;
};

struct Params {
  Problem problem;
  const Sequence* sequences = nullptr;  // problem.batch of them
  const i64* tile_begin = nullptr;      // query tiles of all KV heads before sequence b; problem.batch + 1 entries
  i64 max_seqlen_kv = 0;                // longest sequence
  char* scratch = nullptr;              // num_workers x scratch_stride bytes, 64-byte aligned
  i64 scratch_stride = 0;
  Parallel parallel;
};

// One build of the kernels in cpu/level.
struct Kernels {
  i64 (*forward_scratch)(const Problem&);  // bytes per worker
  i64 (*backward_scratch)(const Problem&, i64 max_seqlen_kv);
  void (*forward)(const Params&, const ForwardTensors&);
  void (*backward)(const Params&, const BackwardTensors&);
};

// An instruction set the library has kernels for.
struct Level {
  const char* name;     // "scalar", "baseline", "avx2", "avx512", ...
  bool (*available)();  // can this processor run it?
  const Kernels* kernels;
};

}  // namespace iso::cpu
