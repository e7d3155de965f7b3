// What `isoflash bench` runs: named cases, or a batch from a file, each as input sets in memory of their own.
#pragma once

#include <string>
#include <vector>

#include "batch.h"

namespace iso::tool {

struct BenchCase {
  const char* name;
  const char* about;
  i64 num_heads_q, num_heads_kv, head_dim;
  i64 batch, context, history, candidates, group_size;  // dense; batch 0: packed sessions of made-up users
  HistoryKind history_kind;
};

const std::vector<BenchCase>& bench_cases();

// The case with elements of `dtype`; normally distributed, except for the packed sessions, which come from pack_batch().
Batch make_bench_batch(const BenchCase& bench_case, DType dtype, u64 seed);

// The same batch in memory of its own.
Batch copy_batch(const Batch& batch);

}  // namespace iso::tool
