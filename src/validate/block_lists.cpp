#include "validate/block_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "base/math.h"
#include "validate/broadcast.h"
#include "validate/propagate.h"
#include "validate/tensor.h"

namespace iso {
namespace {

constexpr i64 kBlockMultiple = 64;

// An int32 tensor (batch, num_heads_q, num_blocks) or with a fourth axis, packed without the batch; strides are 0 where an
// axis is shared.
struct Array {
  const i32* data = nullptr;
  i64 batch = 0, head = 0, block = 0, entry = 0;  // strides

  i32 at(i64 b, i64 h, i64 m, i64 n = 0) const { return data[b * batch + h * head + m * block + n * entry]; }
};

// `rows` of each sequence, and of the axis itself for a dense one.
template <class Rows>
BlockAxis make_axis(const Problem& p, const std::vector<Sequence>& sequences, i64 axis_rows, i64 block, const Rows& rows) {
  BlockAxis axis;
  axis.packed = p.packed;
  for (const Sequence& s : sequences) {
    axis.begin.push_back(p.packed ? axis.total : 0);
    axis.count.push_back(static_cast<i32>(ceil_div<i64>(rows(s), block)));
    if (p.packed) axis.total += axis.count.back();
    axis_rows = max_of<i64>(axis_rows, rows(s));
  }
  if (!p.packed) axis.total = ceil_div(axis_rows, block);
  return axis;
}

// One of the lists mask, full and diag.
struct List {
  std::string name;  // blocks.forward.mask
  BlockKind kind;
  Array counts, indices;
  i64 width = 0;
};

// The given lists of one direction.
struct Direction {
  const BlockAxis *own, *other;  // what indexes the lists, and what they hold
  std::vector<List> lists;
  bool shared_batch = true, shared_heads = true;
};

const char* kind_name(BlockKind kind) {
  switch (kind) {
    case BlockKind::mask: return "mask";
    case BlockKind::full: return "full";
    case BlockKind::diag: return "diag";
    case BlockKind::none: break;
  }
  return "no";
}

// --- reading ---------------------------------------------------------------------------------------------------------

Expected<Array> read_array(const isoflash_tensor& descriptor, const std::string& name, const Problem& p, i64 num_blocks,
                           bool has_width) {
  const auto shape = read_tensor(descriptor, name.c_str());
  if (!shape) return tl::unexpected(shape.error());
  const BroadcastAxis axes[] = {{"batch", p.batch, true},
                                {"num_heads_q", p.num_heads_q, true},
                                {p.packed ? "total_blocks" : "num_blocks", num_blocks, false},
                                {"width", kAnyExtent, false}};
  const auto expected = std::span(axes).subspan(p.packed ? 1 : 0, (p.packed ? 2 : 3) + (has_width ? 1 : 0));
  if (!fits(*shape, expected))
    return raise(errors::BlockListShape{.tensor = name, .got = shape_text(*shape), .expected = axes_text(expected)});
  auto t = read_index_tensor(descriptor, name.c_str());
  if (!t) return tl::unexpected(t.error());
  // An expanded axis (stride 0) is as shared as one of extent 1. So is every axis where there is nothing to read: an empty
  // tensor may have any number of heads.
  stride_over_shared_axes(*t);
  if (!has_elements(*t)) std::fill(t->strides, t->strides + t->rank, 0);
  const i64* strides = t->strides + (p.packed ? 0 : 1);
  return Array{static_cast<const i32*>(t->data), p.packed ? 0 : t->strides[0], strides[0], strides[1],
               has_width ? strides[2] : 0};
}

Expected<Direction> read_direction(const isoflash_block_lists& d, const char* direction, const Problem& p,
                                   const BlockAxis& own, const BlockAxis& other) {
  Direction out{&own, &other, {}};
  const struct {
    BlockKind kind;
    const isoflash_block_list& from;
  } lists[] = {{BlockKind::mask, d.mask}, {BlockKind::full, d.full}, {BlockKind::diag, d.diag}};
  for (const auto& [kind, from] : lists) {
    const std::string name = fmt::format("blocks.{}.{}", direction, kind_name(kind));
    const bool counts = from.counts.rank != 0, indices = from.indices.rank != 0;
    if (counts != indices)
      return raise(errors::BlockListUnpaired{.given = name + (counts ? ".counts" : ".indices"),
                                             .missing = name + (counts ? ".indices" : ".counts")});
    if (!counts) continue;
    List list{name, kind, {}, {}};
    auto read = read_array(from.counts, name + ".counts", p, own.total, false);
    if (!read) return tl::unexpected(read.error());
    list.counts = *read;
    read = read_array(from.indices, name + ".indices", p, own.total, true);
    if (!read) return tl::unexpected(read.error());
    list.indices = *read;
    list.width = from.indices.shape[from.indices.rank - 1];
    out.shared_batch = out.shared_batch && list.counts.batch == 0 && list.indices.batch == 0;
    out.shared_heads = out.shared_heads && list.counts.head == 0 && list.indices.head == 0;
    out.lists.push_back(std::move(list));
  }
  // Shared lists still differ in what their indices may be, if the sequences differ in length.
  const auto same = [](const std::vector<i32>& x) {
    return std::adjacent_find(x.begin(), x.end(), std::not_equal_to<>()) == x.end();
  };
  out.shared_batch = out.shared_batch && !own.packed && same(own.count) && same(other.count);
  return out;
}

// --- merging ---------------------------------------------------------------------------------------------------------

struct Found {
  i32 block;
  const List* list;
  i64 position;
};

// Collects what the lists hold for block `m` of sequence b.
Expected<void> collect(const Direction& d, std::size_t b, i64 head, i32 m, std::vector<Found>& found) {
  found.clear();
  const i64 row = d.own->begin[b] + m;
  const i32 num_blocks = d.other->count[b];
  for (const List& list : d.lists) {
    const i32 count = list.counts.at(static_cast<i64>(b), head, row);
    if (count < 0 || count > list.width)
      return raise(errors::BlockCountRange{
          .list = list.name, .batch_index = b, .head = head, .block = m, .got = count, .width = list.width});
    for (i64 n = 0; n < count; ++n) {
      const i32 block = list.indices.at(static_cast<i64>(b), head, row, n);
      if (block < 0 || block >= num_blocks)
        return raise(errors::BlockIndexRange{.list = list.name,
                                             .batch_index = b,
                                             .head = head,
                                             .block = m,
                                             .position = n,
                                             .got = block,
                                             .num_blocks = num_blocks});
      found.push_back({block, &list, n});
    }
  }
  const auto before = [](const Found& x, const Found& y) { return x.block < y.block; };
  if (!std::is_sorted(found.begin(), found.end(), before)) std::stable_sort(found.begin(), found.end(), before);
  for (std::size_t n = 1; n < found.size(); ++n) {
    const Found &x = found[n - 1], &y = found[n];
    if (x.block != y.block) continue;
    if (x.list == y.list)
      return raise(errors::BlockListedTwice{.list = x.list->name,
                                            .batch_index = b,
                                            .head = head,
                                            .block = m,
                                            .listed = x.block,
                                            .first = x.position,
                                            .second = y.position});
    return raise(errors::BlockInTwoLists{.list = x.list->name,
                                         .other_list = y.list->name,
                                         .batch_index = b,
                                         .head = head,
                                         .block = m,
                                         .listed = x.block,
                                         .first = x.position,
                                         .second = y.position});
  }
  return {};
}

Expected<MergedLists> merge(const Direction& d, const Problem& p) {
  MergedLists out;
  std::vector<Found> found;
  const std::size_t batch = static_cast<std::size_t>(p.batch);
  for (std::size_t b = 0; b < batch; ++b) {
    const i64 stride = d.own->count[b] + 1;
    out.stride.push_back(d.shared_heads ? 0 : stride);
    if (d.shared_batch && b > 0) {
      out.first.push_back(out.first[0]);
      continue;
    }
    out.first.push_back(static_cast<i64>(out.begin.size()));
    const i64 heads = d.shared_heads ? min_of<i64>(p.num_heads_q, 1) : p.num_heads_q;
    for (i64 head = 0; head < heads; ++head) {
      for (i32 m = 0; m < d.own->count[b]; ++m) {
        ISO_RETURN_IF_ERROR(collect(d, b, head, m, found));
        out.begin.push_back(static_cast<i64>(out.entries.size()));
        for (const Found& f : found) out.entries.push_back({f.block, f.list->kind});
      }
      out.begin.push_back(static_cast<i64>(out.entries.size()));
    }
  }
  return out;
}

// --- the two directions against each other -----------------------------------------------------------------------------

struct Entry {
  i32 m, n;  // query block, key block
  BlockKind kind;
  auto operator<=>(const Entry&) const = default;
};

tl::unexpected<Error> not_transposed(const Entry& e, std::size_t b, i64 head, bool in_forward) {
  return raise(errors::BlockListsNotTransposed{.kind = kind_name(e.kind),
                                               .batch_index = b,
                                               .head = head,
                                               .query_block = e.m,
                                               .key_block = e.n,
                                               .listed_in = in_forward ? "blocks.forward" : "blocks.backward",
                                               .missing_in = in_forward ? "blocks.backward" : "blocks.forward"});
}

// The lists of one sequence and head as entries in the order of query blocks, then key blocks.
std::vector<Entry> entries_of(const MergedLists& lists, std::size_t b, i64 head, i32 num_blocks, bool by_key) {
  std::vector<Entry> out;
  for (i32 own = 0; own < num_blocks; ++own)
    for (const BlockEntry& entry : lists.row(b, head, own))
      out.push_back(by_key ? Entry{entry.block, own, entry.kind} : Entry{own, entry.block, entry.kind});
  if (by_key) std::sort(out.begin(), out.end());
  return out;
}

Expected<void> check_transposed(const Direction& f, const MergedLists& forward, const Direction& k,
                                const MergedLists& backward, const Problem& p) {
  const i64 batch = f.shared_batch && k.shared_batch ? min_of<i64>(p.batch, 1) : p.batch;
  const i64 heads = f.shared_heads && k.shared_heads ? min_of<i64>(p.num_heads_q, 1) : p.num_heads_q;
  for (std::size_t b = 0; b < static_cast<std::size_t>(batch); ++b)
    for (i64 head = 0; head < heads; ++head) {
      const std::vector<Entry> x = entries_of(forward, b, head, f.own->count[b], false);
      const std::vector<Entry> y = entries_of(backward, b, head, k.own->count[b], true);
      const auto [in_x, in_y] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
      if (in_x == x.end() && in_y == y.end()) continue;
      const bool in_forward = in_y == y.end() || (in_x != x.end() && *in_x < *in_y);
      return not_transposed(in_forward ? *in_x : *in_y, b, head, in_forward);
    }
  return {};
}

// --- valid bounds ----------------------------------------------------------------------------------------------------

// Copies one of the two arrays to the end of `to`, as (batch or 1, heads or 1, blocks of the sequence).
Expected<void> copy_bounds(const Array& from, const char* name, const Problem& p, const BlockAxis& axis, i64 block,
                           bool shared_batch, bool shared_heads, std::vector<i32>& to) {
  const i64 batch = shared_batch ? min_of<i64>(p.batch, 1) : p.batch;
  const i64 heads = shared_heads ? min_of<i64>(p.num_heads_q, 1) : p.num_heads_q;
  for (std::size_t b = 0; b < static_cast<std::size_t>(batch); ++b)
    for (i64 head = 0; head < heads; ++head)
      for (i32 t = 0; t < axis.count[b]; ++t) {
        const i32 bound = from.at(static_cast<i64>(b), head, axis.begin[b] + t);
        if (bound < 0 || bound > block)
          return raise(errors::ValidBoundRange{
              .tensor = name, .batch_index = b, .head = head, .block = t, .got = bound, .block_size = block});
        to.push_back(bound);
      }
  return {};
}

Expected<void> read_bounds(const isoflash_block_sparsity& d, const Problem& p, std::vector<Sequence>& sequences,
                           MaskArrays& arrays) {
  const bool upper_given = d.valid_upper.rank != 0, lower_given = d.valid_lower.rank != 0;
  const char *const upper_name = "blocks.valid_upper", *const lower_name = "blocks.valid_lower";
  if (upper_given != lower_given)
    return raise(errors::ValidBoundsUnpaired{.given = upper_given ? upper_name : lower_name,
                                             .missing = upper_given ? lower_name : upper_name});
  if (!upper_given) return {};
  if (d.block_m != d.block_n) return raise(errors::ValidBoundsBlocks{.block_m = d.block_m, .block_n = d.block_n});

  const i64 axis_rows = max_of(p.rows_q, p.kv_layout == KvLayout::dense ? p.rows_kv + (p.new_keys ? p.rows_q : 0) : 0);
  BlockAxis axis =
      make_axis(p, sequences, axis_rows, d.block_n, [](const Sequence& s) { return max_of(s.slot_q, s.slot_kv); });
  // In dense arrays a shorter sequence has its bounds in rows as long as the others'.
  if (!p.packed) std::fill(axis.count.begin(), axis.count.end(), static_cast<i32>(axis.total));
  const auto upper = read_array(d.valid_upper, upper_name, p, axis.total, false);
  if (!upper) return tl::unexpected(upper.error());
  const auto lower = read_array(d.valid_lower, lower_name, p, axis.total, false);
  if (!lower) return tl::unexpected(lower.error());

  const bool shared_heads = upper->head == 0 && lower->head == 0;
  const bool shared_batch = !p.packed && upper->batch == 0 && lower->batch == 0;
  for (const auto& [bounds, name] : {std::pair{*upper, upper_name}, {*lower, lower_name}})
    ISO_RETURN_IF_ERROR(copy_bounds(bounds, name, p, axis, d.block_n, shared_batch, shared_heads, arrays.valid_bounds));

  const i32* at = arrays.valid_bounds.data();
  const i64 half = static_cast<i64>(arrays.valid_bounds.size() / 2);
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    BlockLists& lists = sequences[b].blocks;
    lists.valid_upper = at;
    lists.valid_lower = at + half;
    lists.valid_stride_head = shared_heads ? 0 : axis.count[b];
    if (!shared_batch) at += axis.count[b] * (shared_heads ? min_of<i64>(p.num_heads_q, 1) : p.num_heads_q);
  }
  return {};
}

// --- sizes and what is given -----------------------------------------------------------------------------------------

// Something of `d` that is given, or null.
const char* given_part(const isoflash_block_sparsity& d) {
  if (any_given(d.forward)) return "blocks.forward";
  if (any_given(d.backward)) return "blocks.backward";
  if (d.valid_upper.rank != 0) return "blocks.valid_upper";
  return d.valid_lower.rank != 0 ? "blocks.valid_lower" : nullptr;
}

}  // namespace

bool any_given(const isoflash_block_lists& d) {
  for (const isoflash_block_list* list : {&d.mask, &d.full, &d.diag})
    if (list->counts.rank != 0 || list->indices.rank != 0) return true;
  return false;
}

Expected<void> check_block_size(const char* argument, i64 size) {
  if (size < kBlockMultiple || size > kMaxSeqlen || size % kBlockMultiple != 0)
    return raise(errors::BlockSize{.argument = argument, .got = size, .multiple = kBlockMultiple});
  return {};
}

Expected<MergedLists> read_lists(const isoflash_block_lists& d, const char* direction, const Problem& p,
                                 const BlockAxis& own, const BlockAxis& other) {
  const auto lists = read_direction(d, direction, p, own, other);
  if (!lists) return tl::unexpected(lists.error());
  return merge(*lists, p);
}

Expected<void> read_block_lists(const isoflash_problem& descriptor, const Problem& p, std::vector<Sequence>& sequences,
                                MaskArrays& arrays) {
  const isoflash_block_sparsity& d = descriptor.blocks;
  if (d.block_m == 0 && d.block_n == 0) {
    if (const char* part = given_part(d)) return raise(errors::BlockListsWithoutSize{.part = part});
    return {};
  }
  ISO_RETURN_IF_ERROR(check_block_size("blocks.block_m", d.block_m));
  ISO_RETURN_IF_ERROR(check_block_size("blocks.block_n", d.block_n));
  if (!any_given(d.forward)) return raise(errors::BlockListsMissing{});
  const bool both = any_given(d.backward), forward_only = p.kv_layout == KvLayout::paged || p.new_keys;
  if (both && forward_only)
    return raise(errors::BackwardListsUnused{.because = p.kv_layout == KvLayout::paged ? "block_table is given"
                                                                                       : "k_new and v_new are given"});

  const BlockAxis queries = make_axis(p, sequences, p.rows_q, d.block_m, [](const Sequence& s) { return s.slot_q; });
  const BlockAxis keys =
      make_axis(p, sequences, forward_only ? 0 : p.rows_kv, d.block_n, [](const Sequence& s) { return s.slot_kv; });
  const auto forward = read_direction(d.forward, "forward", p, queries, keys);
  if (!forward) return tl::unexpected(forward.error());
  auto merged = merge(*forward, p);
  if (!merged) return tl::unexpected(merged.error());
  if (both) {
    const auto backward = read_direction(d.backward, "backward", p, keys, queries);
    if (!backward) return tl::unexpected(backward.error());
    const auto merged_backward = merge(*backward, p);
    if (!merged_backward) return tl::unexpected(merged_backward.error());
    ISO_RETURN_IF_ERROR(check_transposed(*forward, *merged, *backward, *merged_backward, p));
  }

  arrays.block_begin = std::move(merged->begin);
  arrays.block_entries = std::move(merged->entries);
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    BlockLists& lists = sequences[b].blocks;
    lists.block_m = static_cast<i32>(d.block_m);
    lists.block_n = static_cast<i32>(d.block_n);
    lists.begin = arrays.block_begin.data() + merged->first[b];
    lists.entries = arrays.block_entries.data();
    lists.stride_head = merged->stride[b];
  }
  return read_bounds(d, p, sequences, arrays);
}

}  // namespace iso
