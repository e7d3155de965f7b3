// Checks of the kernels in src/kernels/common against float64, for any machine that runs them. Each check runs one kernel
// on one case and compares every byte of its outputs, guards and gaps included.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "common_kernels/host_tensor.h"
#include "common_kernels/machine.h"

namespace iso::test {

struct Case {
  std::string name = {};
  bool packed = false;
  std::vector<i32> lengths = {};  // rows in use, per sequence
  std::vector<i32> slots = {};    // rows that belong to it; empty: the lengths (packed), the longest length (dense)
  i64 num_heads = 2;
  i32 head_dim = 64, head_dim_v = 64;
  TileOrder order{64, 64, 1};
  Strides inputs = Strides::contiguous, outputs = Strides::contiguous;
  bool dlse = false, zero_accum = true, write_lse = true;
  i32 num_parts = 3;
};
inline void PrintTo(const Case& c, std::ostream* to) { *to << c.name; }  // for GoogleTest

// Every layout, stride and boundary the kernels tell apart.
std::vector<Case> small_cases();
// Sizes at which addresses and grids are like in use; for a GPU.
std::vector<Case> large_cases();

// What is wrong, empty if nothing. `variant` as in src/instances/common.inc.
std::string check_bwd_preprocess(Machine& machine, const Case& c, const std::string& variant);
std::string check_dq_convert(Machine& machine, const Case& c, const std::string& variant);
std::string check_split_combine(Machine& machine, const Case& c, const std::string& variant);

}  // namespace iso::test
