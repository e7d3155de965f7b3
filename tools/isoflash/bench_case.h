// What `isoflash bench` runs: named cases, or a batch from a file, each as input sets in memory of their own.
#pragma once

#include <string>
#include <vector>

#include "batch.h"
#include "core/mask.h"
#include "pack_forms.h"

namespace iso::tool {

struct BenchCase {
  std::string name, about;
  i64 num_heads_q, num_heads_kv, head_dim;
  i64 batch, context, history, candidates, group_size;  // dense; batch 0: packed sessions of made-up users
  HistoryKind history_kind;
  bool candidates_only = false;  // as queries, against one tensor of keys
  // The same data in another form than the case `plain`, which the report compares it with.
  std::string plain = {};
  FormOptions form = {};
  int num_splits = 0;
};

const std::vector<BenchCase>& bench_cases();

// The case with elements of `dtype`; normally distributed, except for the packed sessions, which come from pack_batch().
Batch make_bench_batch(const BenchCase& bench_case, DType dtype, u64 seed);

// The same batch in memory of its own.
Batch copy_batch(const Batch& batch);

}  // namespace iso::tool
