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

i64 history_pairs(const MaskSpec& m, Interval rows) {
  const Interval valid{m.history_begin, m.history_end};
  if (rows.empty() || valid.empty()) return 0;
  switch (m.history_kind) {
    case HistoryKind::bidirectional: return i64{rows.size()} * valid.size();
    case HistoryKind::causal: return keys_below(rows, 1, valid);
    case HistoryKind::window:
      return keys_below(rows, i64{m.window_right} + 1, valid) - keys_below(rows, -i64{m.window_left}, valid);
  }
  return 0;
}

// Sum over the candidate rows of the size of their group; the last group may be shorter than the others.
i64 group_pairs(const MaskSpec& m, Interval rows) {
  if (rows.empty()) return 0;
  const i32 last_begin = group_begin(m, m.candidate_end - 1);
  const i64 in_last = intersect(rows, {last_begin, m.candidate_end}).size();
  return in_last * (m.candidate_end - last_begin) + (rows.size() - in_last) * m.candidate_group_size;
}

}  // namespace

i64 count_visible_pairs(const Sequence& s) {
  const MaskSpec& m = s.mask;
  const Interval queries = query_positions(s);
  if (is_plain(m)) return history_pairs(m, queries);

  const Interval context_rows = intersect(queries, {0, m.context_end});
  const Interval history_rows = intersect(queries, {m.history_begin, m.history_end});
  const Interval candidate_rows = intersect(queries, {m.candidate_begin, m.candidate_end});
  const i64 valid = Interval{m.history_begin, m.history_end}.size();
  return i64{context_rows.size()} * (m.context_end + valid) + i64{history_rows.size()} * m.context_end +
         history_pairs(m, history_rows) + i64{candidate_rows.size()} * (m.context_end + valid) +
         group_pairs(m, candidate_rows);
}

}  // namespace iso
