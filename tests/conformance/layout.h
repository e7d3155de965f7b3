// Where the sequences of a case lie and who sees whom in them: the integer arrays of a case (row intervals, block lists,
// page table) as the C ABI takes them, and the sequences they amount to, worked out here and not by the library.
#pragma once

#include <vector>

#include "conformance/case.h"

namespace iso::conformance {

// A contiguous array of integers; no shape: not given.
struct IntArray {
  std::vector<i64> shape;
  std::vector<i32> values;
  bool given() const { return !shape.empty(); }
};

// What the C ABI calls isoflash_block_list.
struct ListArrays {
  IntArray counts, indices;
};

struct CaseArrays {
  IntArray row_intervals;
  ListArrays forward[3], backward[3];  // mask, full, diag
  IntArray valid_upper, valid_lower;
  IntArray block_table;
  i64 num_pages = 0;
};

struct Layout {
  CaseArrays arrays;
  std::vector<i64> block_begin;
  std::vector<BlockEntry> block_entries;
  std::vector<Sequence> sequences;  // with views into the above, which moving a Layout keeps valid

  Layout() = default;
  Layout(Layout&&) = default;
  Layout& operator=(Layout&&) = default;
};

Layout layout_of(const Case& c);

// The keys of the longest sequence.
i64 most_keys(const Layout& layout);

}  // namespace iso::conformance
