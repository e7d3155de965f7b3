// A call of the library as the oracle takes it, worked out here and not by the library, so that a mistake of one shows.
#pragma once

#include <vector>

#include "core/problem.h"
#include "isoflash/isoflash.hpp"

namespace iso::tool {

struct OracleProblem {
  Problem problem;
  // With views into the call's own arrays (intervals, block_table) and into those below, which moving keeps valid.
  std::vector<Sequence> sequences;
  std::vector<i64> block_begin;
  std::vector<BlockEntry> block_entries;
  std::vector<i32> valid_bounds;

  OracleProblem() = default;
  OracleProblem(OracleProblem&&) = default;
  OracleProblem& operator=(OracleProblem&&) = default;
};

// Call after a plan of `call` was made, which proves that its lengths, mask and lists fit together.
OracleProblem oracle_problem(const isoflash::Problem& call);

// A tensor of the ABI as core/ knows it.
Tensor core_tensor(const isoflash_tensor& t);

}  // namespace iso::tool
