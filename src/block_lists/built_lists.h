// Block lists that own their arrays, as the C ABI describes them.
#pragma once

#include <cstdint>
#include <vector>

#include "block_lists/block_table.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

class BuiltLists {
 public:
  BuiltLists(i64 block_m, i64 block_n);
  BuiltLists(BuiltLists&&) = default;  // a copy would view the original's arrays
  BuiltLists& operator=(BuiltLists&&) = default;

  const isoflash_block_sparsity& view() const { return view_; }

  // num_blocks: extent of the axis of blocks, which of packed tables is that of all sequences.
  void set_forward(const BlockTable& table, i64 num_blocks) { set(table, num_blocks, view_.forward); }
  void set_backward(const BlockTable& table, i64 num_blocks) { set(table, num_blocks, view_.backward); }
  // Both (batch, 1, num_blocks).
  void set_bounds(std::vector<i32> upper, std::vector<i32> lower, i64 batch, i64 num_blocks);
  // Those of `from`, if it has any.
  Expected<void> copy_bounds(const isoflash_block_sparsity& from);

 private:
  void set(const BlockTable& table, i64 num_blocks, isoflash_block_lists& lists);
  void set(const BlockTable& table, i64 num_blocks, BlockKind kind, bool wanted, isoflash_block_list& list);
  isoflash_tensor keep(std::vector<i32> values, const std::vector<int64_t>& shape);

  isoflash_block_sparsity view_{};
  std::vector<std::vector<i32>> arrays_;
};

// isoflash_block_lists_from_problem, on a struct of this version.
Expected<BuiltLists> lists_from_problem(const isoflash_problem& problem, i64 block_m, i64 block_n);

// The arguments of isoflash_block_lists_from_sessions.
struct Sessions {
  const isoflash_tensor &cu_seqlens, &candidate_slot;
  const isoflash_tensor* padding;  // or NULL
  i64 seqlen, prefix, block;
};
Expected<BuiltLists> lists_from_sessions(const Sessions& sessions);

// isoflash_block_lists_transpose.
Expected<BuiltLists> transposed_lists(const isoflash_block_sparsity& from, i64 num_blocks);

}  // namespace iso
