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
  bool intervals = false;               // some sequence has explicit intervals
  char* scratch = nullptr;              // num_workers x scratch_stride bytes, 64-byte aligned
  i64 scratch_stride = 0;
  i64 num_splits = 1;        // parts that the keys are cut into (forward)
  char* partials = nullptr;  // num_splits > 1: query tiles x num_splits x partial_size bytes
  i64 partial_size = 0;
  Parallel parallel;
};

// One build of the kernels in cpu/level.
struct Kernels {
  i64 (*forward_scratch)(const Problem&, bool intervals, i64 max_seqlen_kv);  // bytes per worker
  i64 (*backward_scratch)(const Problem&, bool intervals, i64 max_seqlen_kv);
  i64 (*partial_size)(const Problem&);  // of one part of one query tile
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
