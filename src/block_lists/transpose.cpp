// One direction of lists made from the other. What is given is read as a plan reads it, of a problem as large as the lists
// say.
#include <fmt/format.h>

#include "block_lists/built_lists.h"
#include "validate/block_lists.h"
#include "validate/propagate.h"
#include "validate/tensor.h"

namespace iso {
namespace {

BlockAxis dense_axis(i64 batch, i64 num_blocks) {
  return {num_blocks, false, std::vector<i64>(batch), std::vector<i32>(batch, static_cast<i32>(num_blocks))};
}

// Extents of the lists, (batch, heads, blocks): the largest of each axis; what is shared has 1.
Expected<Tensor> extents_of(const isoflash_block_lists& lists, const char* direction) {
  Tensor out;
  for (const auto& [list, kind] : {std::pair{&lists.mask, "mask"}, {&lists.full, "full"}, {&lists.diag, "diag"}}) {
    for (const isoflash_tensor* array : {&list->counts, &list->indices}) {
      const std::string name =
          fmt::format("blocks.{}.{}.{}", direction, kind, array == &list->counts ? "counts" : "indices");
      const auto t = read_tensor(*array, name.c_str());
      if (!t) return t;
      if (!given(*t)) continue;
      if (t->rank != (array == &list->counts ? 3 : 4))
        return raise(errors::TransposeNeedsLists{.got = fmt::format("{} has shape {}", name, shape_text(*t))});
      for (i32 axis = 0; axis < 3; ++axis)
        out.shape[axis] = out.rank == 0 ? t->shape[axis] : max_of(out.shape[axis], t->shape[axis]);
      out.rank = 3;
    }
  }
  return out;
}

// The rows of each sequence and head.
BlockTable table_of(const MergedLists& lists, i64 batch, i64 heads, i64 num_blocks) {
  BlockTable table(false, batch, heads);
  for (i64 b = 0; b < batch; ++b) {
    for (i64 head = 0; head < heads; ++head) {
      for (i64 m = 0; m < num_blocks; ++m) {
        for (const BlockEntry& entry : lists.row(static_cast<std::size_t>(b), head, static_cast<i32>(m)))
          table.at(b, head).add(entry.block, entry.kind);
        table.at(b, head).end_row();
      }
    }
  }
  return table;
}

}  // namespace

Expected<BuiltLists> transposed_lists(const isoflash_block_sparsity& from, i64 num_blocks) {
  ISO_RETURN_IF_ERROR(check_block_size("block_m", from.block_m));
  ISO_RETURN_IF_ERROR(check_block_size("block_n", from.block_n));
  if (num_blocks < 0 || num_blocks > kMaxSeqlen)
    return raise(errors::TransposeNumBlocks{.got = num_blocks, .max = kMaxSeqlen});
  const bool forward = any_given(from.forward);
  const isoflash_block_lists& lists = forward ? from.forward : from.backward;
  if (!any_given(lists)) return raise(errors::TransposeNeedsLists{.got = "neither direction has a list"});
  const char* direction = forward ? "forward" : "backward";

  const auto extents = extents_of(lists, direction);
  if (!extents) return tl::unexpected(extents.error());
  Problem p;
  p.batch = extents->shape[0];
  p.num_heads_q = extents->shape[1];
  const i64 own_blocks = extents->shape[2];
  const auto merged = read_lists(lists, direction, p, dense_axis(p.batch, own_blocks), dense_axis(p.batch, num_blocks));
  if (!merged) return tl::unexpected(merged.error());
  const BlockTable own = table_of(*merged, p.batch, p.num_heads_q, own_blocks);
  const BlockTable other = transpose(own, std::vector<i64>(p.batch, num_blocks));

  BuiltLists out(from.block_m, from.block_n);
  out.set_forward(forward ? own : other, forward ? own_blocks : num_blocks);
  out.set_backward(forward ? other : own, forward ? num_blocks : own_blocks);
  ISO_RETURN_IF_ERROR(out.copy_bounds(from));
  return out;
}

}  // namespace iso
