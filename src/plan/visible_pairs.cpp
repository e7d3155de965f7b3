#include "plan/visible_pairs.h"

#include "base/math.h"

namespace iso {
namespace {

// Sum of clamp(x, 0, limit) over all x < n.
i64 clamped_sum(i64 n, i64 limit) {
  if (n <= 0) return 0;
  if (n <= limit) return n * (n - 1) / 2;
  return limit * (limit - 1) / 2 + (n - limit) * limit;
}

// Sum over the rows p of clamp(p + shift - valid.begin, 0, valid.size()): how many valid keys lie below p + shift.
i64 keys_below(Interval rows, i64 shift, Interval valid) {
  const i64 offset = shift - valid.begin;
  return clamped_sum(rows.end + offset, valid.size()) - clamped_sum(rows.begin + offset, valid.size());
}

// Pairs of history rows and the keys of `valid`, which are history.
i64 history_pairs(const MaskSpec& m, Interval rows, Interval valid) {
  if (rows.empty() || valid.empty()) return 0;
  switch (m.history_kind) {
    case HistoryKind::bidirectional: return i64{rows.size()} * valid.size();
    case HistoryKind::causal: return keys_below(rows, 1, valid);
    case HistoryKind::window:
      return keys_below(rows, i64{m.window_right} + 1, valid) - keys_below(rows, -i64{m.window_left}, valid);
  }
  return 0;
}

// Pairs of candidate rows and candidate keys of one group.
i64 group_pairs(const MaskSpec& m, Interval rows, Interval keys) {
  if (rows.empty() || keys.empty()) return 0;
  // Of the groups that both meet, those between the first and the last lie wholly in both and are full.
  const i32 first = max_of(group_begin(m, rows.begin), group_begin(m, keys.begin));
  const i32 last = min_of(group_begin(m, rows.end - 1), group_begin(m, keys.end - 1));
  if (first > last) return 0;
  const auto pairs_in = [&](i32 begin) {
    const Interval group{begin, group_end(m, begin)};
    return i64{intersect(rows, group).size()} * intersect(keys, group).size();
  };
  if (first == last) return pairs_in(first);
  const i64 size = m.candidate_group_size, between = (last - first) / size - 1;
  return pairs_in(first) + between * size * size + pairs_in(last);
}

// Pairs that the mask lets through, of query positions `queries` and keys `keys`.
i64 mask_pairs(const MaskSpec& m, Interval queries, Interval keys) {
  const Interval context = intersect(keys, {0, m.context_end});
  const Interval history = intersect(keys, {m.history_begin, m.history_end});
  if (is_plain(m)) return history_pairs(m, queries, history);

  const Interval candidates{m.candidate_begin, m.candidate_end};
  const Interval context_rows = intersect(queries, {0, m.context_end});
  const Interval history_rows = intersect(queries, {m.history_begin, m.history_end});
  const Interval candidate_rows = intersect(queries, candidates);
  return (i64{context_rows.size()} + candidate_rows.size()) * (context.size() + history.size()) +
         i64{history_rows.size()} * context.size() + history_pairs(m, history_rows, history) +
         group_pairs(m, candidate_rows, intersect(keys, candidates));
}

// Pairs of query rows `rows` and keys `keys` where there are no block lists.
i64 pairs_beneath_blocks(const Sequence& s, i64 head, Interval rows, Interval keys) {
  const i32 offset = s.mask.query_offset;
  if (s.intervals.data == nullptr) return mask_pairs(s.mask, {rows.begin + offset, rows.end + offset}, keys);
  i64 pairs = 0;
  for (i32 i = rows.begin; i < rows.end; ++i) {
    const RowIntervals seen = explicit_intervals(s, head, i);
    for (int n = 0; n < seen.count; ++n) pairs += intersect(seen.at[n], keys).size();
  }
  return pairs;
}

// Positions of `x`, which lie in one block, that are valid by its bounds.
i64 valid_count(const BlockLists& b, i64 head, Interval x) {
  if (x.empty()) return 0;
  const i32 block = x.begin / b.block_n, begin = block * b.block_n;
  const i64 at = head * b.valid_stride_head + block;
  const Interval below{begin, begin + b.valid_upper[at]}, above{max_of(begin + b.valid_lower[at], below.end), x.end};
  return i64{intersect(x, below).size()} + intersect(x, above).size();
}

i64 entry_pairs(const Sequence& s, i64 head, Interval rows, const BlockEntry& entry) {
  const BlockLists& b = s.blocks;
  const Interval block{entry.block * b.block_n, entry.block * b.block_n + b.block_n};
  const Interval keys = intersect(block, {0, s.seqlen_kv});
  const i32 offset = s.mask.query_offset;
  switch (entry.kind) {
    case BlockKind::none: break;
    case BlockKind::full: return i64{rows.size()} * keys.size();
    case BlockKind::diag: return intersect(keys, {rows.begin + offset, rows.end + offset}).size();
    case BlockKind::mask:
      if (b.valid_upper != nullptr) return valid_count(b, head, rows) * valid_count(b, head, keys);
      return pairs_beneath_blocks(s, head, rows, keys);
  }
  return 0;
}

}  // namespace

i64 count_visible_pairs(const Sequence& s, i64 head) {
  if (!given(s.blocks)) return pairs_beneath_blocks(s, head, {0, s.seqlen_q}, {0, s.seqlen_kv});
  i64 pairs = 0;
  for (i32 begin = 0; begin < s.seqlen_q; begin += s.blocks.block_m) {
    const Interval rows{begin, min_of(begin + s.blocks.block_m, s.seqlen_q)};
    const BlockRow lists = block_row(s.blocks, head, begin / s.blocks.block_m);
    for (const BlockEntry* entry = lists.first; entry < lists.last; ++entry) pairs += entry_pairs(s, head, rows, *entry);
  }
  return pairs;
}

bool heads_see_alike(const Sequence& s) {
  return s.intervals.stride_head == 0 && s.blocks.stride_head == 0 && s.blocks.valid_stride_head == 0;
}

}  // namespace iso
