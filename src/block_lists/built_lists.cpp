#include "block_lists/built_lists.h"

#include <algorithm>
#include <utility>

#include "validate/tensor.h"

namespace iso {

BuiltLists::BuiltLists(i64 block_m, i64 block_n) {
  view_.block_m = block_m;
  view_.block_n = block_n;
}

isoflash_tensor BuiltLists::keep(std::vector<i32> values, const std::vector<int64_t>& shape) {
  arrays_.push_back(std::move(values));
  isoflash_tensor t;
  isoflash_tensor_contiguous(&t, arrays_.back().data(), ISOFLASH_I32, static_cast<int32_t>(shape.size()), shape.data());
  return t;
}

// The entries of one kind as counts and indices; no list if there are none, unless it is `wanted`.
void BuiltLists::set(const BlockTable& table, i64 num_blocks, BlockKind kind, bool wanted, isoflash_block_list& list) {
  const auto of_kind = [kind](const BlockEntry& entry) { return entry.kind == kind; };
  std::vector<i32> counts;
  for (const BlockRows& rows : table.rows)
    for (i64 m = 0; m < rows.size(); ++m)
      counts.push_back(static_cast<i32>(std::count_if(rows.first(m), rows.last(m), of_kind)));
  i64 width = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  if (width == 0 && !wanted) return;
  width = std::max<i64>(width, 1);

  std::vector<i32> indices(counts.size() * width);
  auto to = indices.begin();
  for (const BlockRows& rows : table.rows) {
    for (i64 m = 0; m < rows.size(); ++m, to += width) {
      auto next = to;
      for (const BlockEntry* entry = rows.first(m); entry != rows.last(m); ++entry)
        if (of_kind(*entry)) *next++ = entry->block;
    }
  }
  std::vector<int64_t> shape{table.batch, table.heads, num_blocks};
  if (table.packed) shape = {table.heads, num_blocks};
  list.counts = keep(std::move(counts), shape);
  shape.push_back(width);
  list.indices = keep(std::move(indices), shape);
}

// A direction without any entry is told from one that is not given by its list of masks.
void BuiltLists::set(const BlockTable& table, i64 num_blocks, isoflash_block_lists& lists) {
  set(table, num_blocks, BlockKind::full, false, lists.full);
  set(table, num_blocks, BlockKind::diag, false, lists.diag);
  const bool others = lists.full.counts.rank != 0 || lists.diag.counts.rank != 0;
  set(table, num_blocks, BlockKind::mask, !others, lists.mask);
}

void BuiltLists::set_bounds(std::vector<i32> upper, std::vector<i32> lower, i64 batch, i64 num_blocks) {
  view_.valid_upper = keep(std::move(upper), {batch, 1, num_blocks});
  view_.valid_lower = keep(std::move(lower), {batch, 1, num_blocks});
}

Expected<void> BuiltLists::copy_bounds(const isoflash_block_sparsity& from) {
  const struct {
    const isoflash_tensor& from;
    const char* name;
    isoflash_tensor& to;
  } bounds[] = {{from.valid_upper, "blocks.valid_upper", view_.valid_upper},
                {from.valid_lower, "blocks.valid_lower", view_.valid_lower}};
  for (const auto& bound : bounds) {
    if (bound.from.rank == 0) continue;
    const auto t = read_index_tensor(bound.from, bound.name);
    if (!t) return tl::unexpected(t.error());
    if (t->rank != 3)
      return raise(errors::BlockListShape{
          .tensor = bound.name, .got = shape_text(*t), .expected = "(batch, num_heads_q, num_blocks)"});
    std::vector<i32> values;
    for (i64 b = 0; b < t->shape[0]; ++b)
      for (i64 head = 0; head < t->shape[1]; ++head)
        for (i64 m = 0; m < t->shape[2]; ++m)
          values.push_back(static_cast<const i32*>(t->data)[b * t->strides[0] + head * t->strides[1] + m * t->strides[2]]);
    bound.to = keep(std::move(values), {t->shape[0], t->shape[1], t->shape[2]});
  }
  return {};
}

}  // namespace iso
