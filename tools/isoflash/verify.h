// Holds the results of a call against the oracle (core/reference.h), by the tolerance model of the conformance tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/compile.h"
#include "isoflash/isoflash.hpp"

namespace iso::tool {

// sample: up to 8 sequences, the longest and the shortest among them, and in each about a dozen rows: the borders of
// context, history and candidates, and rows in between; gradients of keys likewise; dsink, which sums over all rows, only of
// small batches. full: every row of every sequence.
enum class VerifyMode { off, sample, full };

// One output's finding.
struct Verified {
  std::string output;             // "out", "lse", "dq", "dk", "dv", "dsink", "dbias"
  i64 rows = 0;                   // rows (of one head each) compared
  double error = 0, allowed = 0;  // largest difference to the truth, and what the tolerance model grants there
  std::string finding{};          // empty if all is well, else one line
};

// `tensors` holds results of library calls on `call`; gradients are checked if given. A plan of `call` must have been
// made: the oracle relies on its lengths and masks being consistent.
std::vector<Verified> verify(const isoflash::Problem& call, const isoflash::Backward& tensors, VerifyMode mode,
                             const std::function<void(i64 done, i64 total)>& progress);

inline bool all_well(const std::vector<Verified>& findings) {
  for (const Verified& v : findings)
    if (!v.finding.empty()) return false;
  return true;
}

}  // namespace iso::tool
