// MaskSpec: what one query may see, as a few numbers. visible() is the definition; everything else in this file is derived
// from it and a property test (mask_test.cpp) holds each derived form against it. Explicit intervals and block lists, which
// may stand in for it or refine it, join in core/sequence.h.
//
// Positions of one sequence, `seqlen_kv` keys long:
//
//   0 ........ context_end | ........ history_end_slot | ... | candidate_begin ............ candidate_end | ...
//   context tokens           history slot                gap   candidates, in groups of candidate_group_size
//                            [history_begin, history_end) of it is valid, the rest is padding
//
// Query row i stands at position p = i + query_offset. What p is decides what it sees:
//
//   query p \ key j   context   history (valid)                          own candidate group   other candidates   padding
//   context           yes       yes                                      no                    no                 no
//   history           yes       all / j <= p / p-left <= j <= p+right    no                    no                 no
//   candidate         yes       yes                                      yes                   no                 no
//   padding           no        no                                       no                    no                 no
//
// Attention without context, candidates or padding (plain full, causal, window) has every position in the history; there,
// and only there, p may lie outside [0, seqlen_kv): it acts as a history query (Sq != Sk, bottom-right causal).
#pragma once

#include "base/compile.h"
#include "base/math.h"

namespace iso {

// How a history query sees the history. Values equal isoflash_history_kind in the C ABI.
enum class HistoryKind : i32 { bidirectional = 0, causal = 1, window = 2 };

// What stands at a position.
enum class Role : i32 { padding = 0, context = 1, history = 2, candidate = 3 };

// Lengths are at most 2^29 and query positions lie within [-2^29, 2^30 - 2], so that p - left and p + right + 1 stay inside
// int32 and a window without a limit reaches every key from every position.
inline constexpr i32 kMaxSeqlen = 1 << 29;
inline constexpr i32 kUnlimited = 2 * kMaxSeqlen;  // window_left / window_right without a limit

// The mask of one sequence, every default resolved (validate/mask.cpp makes it). All members are positions or counts.
struct MaskSpec {
  i32 seqlen_kv = 0;
  i32 context_end = 0;                         // context is [0, context_end)
  i32 history_end_slot = 0;                    // the history slot is [context_end, history_end_slot)
  i32 history_begin = 0, history_end = 0;      // its valid part
  i32 candidate_begin = 0, candidate_end = 0;  // candidates
  i32 candidate_group_size = 1;                // the last group may be shorter
  HistoryKind history_kind = HistoryKind::bidirectional;
  i32 window_left = kUnlimited, window_right = kUnlimited;  // used when history_kind is window
  i32 query_offset = 0;                                     // position of query row 0
};

inline namespace ISO_TARGET {

// True if there is nothing but one wholly valid history: plain full, causal or window attention.
ISO_FN bool is_plain(const MaskSpec& m) {
  return m.context_end == 0 && m.candidate_begin >= m.candidate_end && m.history_begin == 0 && m.history_end == m.seqlen_kv;
}

ISO_FN Role role_at(const MaskSpec& m, i32 p) {
  if (p < 0 || p >= m.seqlen_kv) return is_plain(m) ? Role::history : Role::padding;
  if (p < m.context_end) return Role::context;
  if (p >= m.history_begin && p < m.history_end) return Role::history;
  if (p >= m.candidate_begin && p < m.candidate_end) return Role::candidate;
  return Role::padding;
}

// First position of the group that candidate position p belongs to.
ISO_FN i32 group_begin(const MaskSpec& m, i32 p) {
  return m.candidate_begin + (p - m.candidate_begin) / m.candidate_group_size * m.candidate_group_size;
}
ISO_FN i32 group_end(const MaskSpec& m, i32 p) {
  const i32 begin = group_begin(m, p);
  return m.candidate_end - begin < m.candidate_group_size ? m.candidate_end : begin + m.candidate_group_size;
}

// The definition: may the query at position p see the key at position j?
ISO_FN bool visible(const MaskSpec& m, i32 p, i32 j) {
  if (j < 0 || j >= m.seqlen_kv) return false;
  const Role query = role_at(m, p);
  if (query == Role::padding) return false;
  switch (role_at(m, j)) {
    case Role::context: return true;
    case Role::history:
      if (query != Role::history || m.history_kind == HistoryKind::bidirectional) return true;
      if (m.history_kind == HistoryKind::causal) return j <= p;
      return p - m.window_left <= j && j <= p + m.window_right;
    case Role::candidate:
      return query == Role::candidate &&
             (p - m.candidate_begin) / m.candidate_group_size == (j - m.candidate_begin) / m.candidate_group_size;
    case Role::padding: return false;
  }
  return false;
}

// A half-open range of positions; empty when begin >= end.
struct Interval {
  i32 begin = 0, end = 0;
  ISO_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
  ISO_HOST_DEVICE constexpr bool contains(i32 x) const { return x >= begin && x < end; }
  ISO_HOST_DEVICE constexpr i32 size() const { return end > begin ? end - begin : 0; }
};

ISO_HOST_DEVICE constexpr Interval intersect(Interval a, Interval b) {
  return {max_of(a.begin, b.begin), min_of(a.end, b.end)};
}

// A few disjoint intervals in ascending order; add() expects ascending order and joins neighbours that touch.
template <int kCapacity>
struct IntervalList {
  int count = 0;
  Interval at[kCapacity];

  ISO_HOST_DEVICE constexpr void add(Interval x) {
    if (x.empty()) return;
    if (count > 0 && x.begin <= at[count - 1].end) {
      at[count - 1].end = max_of(at[count - 1].end, x.end);
    } else {
      at[count++] = x;
    }
  }
  ISO_HOST_DEVICE constexpr bool contains(i32 x) const {
    for (int n = 0; n < count; ++n)
      if (at[n].contains(x)) return true;
    return false;
  }
  ISO_HOST_DEVICE constexpr bool covers(Interval x) const {
    for (int n = 0; n < count; ++n)
      if (at[n].begin <= x.begin && x.end <= at[n].end) return true;
    return x.empty();
  }
  ISO_HOST_DEVICE constexpr bool meets(Interval x) const {
    for (int n = 0; n < count; ++n)
      if (!intersect(at[n], x).empty()) return true;
    return false;
  }
  ISO_HOST_DEVICE constexpr i64 size() const {
    i64 total = 0;
    for (int n = 0; n < count; ++n) total += at[n].size();
    return total;
  }
};

using RowIntervals = IntervalList<3>;  // context, history, own group
using ColIntervals = IntervalList<3>;  // context, history, candidates (or own group)

// The part of the valid history that the history query at position p sees.
ISO_FN Interval history_seen(const MaskSpec& m, i32 p) {
  Interval h{m.history_begin, m.history_end};
  if (m.history_kind == HistoryKind::causal) h = intersect(h, {m.history_begin, p + 1});
  if (m.history_kind == HistoryKind::window) h = intersect(h, {p - m.window_left, p + m.window_right + 1});
  return h;
}

// Keys that the query at position p sees.
ISO_FN RowIntervals row_intervals(const MaskSpec& m, i32 p) {
  RowIntervals out;
  const Role role = role_at(m, p);
  if (role == Role::padding) return out;
  out.add({0, m.context_end});
  out.add(role == Role::history ? history_seen(m, p) : Interval{m.history_begin, m.history_end});
  if (role == Role::candidate) out.add({group_begin(m, p), group_end(m, p)});
  return out;
}

// Query positions, within `queries`, that see the key at position j.
ISO_FN ColIntervals col_intervals(const MaskSpec& m, i32 j, Interval queries) {
  ColIntervals out;
  const Role role = j < 0 || j >= m.seqlen_kv ? Role::padding : role_at(m, j);
  if (role == Role::padding) return out;
  if (role == Role::candidate) {
    out.add(intersect(queries, {group_begin(m, j), group_end(m, j)}));
    return out;
  }
  // Plain attention has history queries at every position, also outside [0, seqlen_kv).
  const Interval history = is_plain(m) ? queries : Interval{m.history_begin, m.history_end};
  Interval seeing = history;
  if (role == Role::history && m.history_kind == HistoryKind::causal) seeing = intersect(history, {j, history.end});
  if (role == Role::history && m.history_kind == HistoryKind::window)
    seeing = intersect(history, {j - m.window_right, j + m.window_left + 1});
  out.add(intersect(queries, {0, m.context_end}));
  out.add(intersect(queries, seeing));
  out.add(intersect(queries, {m.candidate_begin, m.candidate_end}));
  return out;
}

// What some rows of a query tile see (`any`) and what all of them see (`all`), as key intervals. Rows are split by role,
// each part answered in closed form, so the cost does not depend on the tile's height.
struct TileCover {
  IntervalList<8> any;
  IntervalList<3> all;
};

enum class TileClass : i32 { skip = 0, full = 1, partial = 2 };

namespace mask_detail {

template <int kCapacity>
ISO_FN IntervalList<3> intersect_lists(const IntervalList<kCapacity>& a, const IntervalList<3>& b) {
  IntervalList<3> out;
  for (int x = 0, y = 0; x < a.count && y < b.count;) {
    const Interval common = intersect(a.at[x], b.at[y]);
    if (!common.empty() && out.count < 3) out.add(common);
    if (a.at[x].end < b.at[y].end)
      ++x;
    else
      ++y;
  }
  return out;
}

// Union of up to a handful of intervals in any order, kept sorted.
struct UnionBuilder {
  int count = 0;
  Interval at[12];
  ISO_HOST_DEVICE constexpr void insert(Interval x) {
    if (x.empty()) return;
    int n = count++;
    for (; n > 0 && at[n - 1].begin > x.begin; --n) at[n] = at[n - 1];
    at[n] = x;
  }
  ISO_HOST_DEVICE constexpr IntervalList<8> list() const {
    IntervalList<8> out;
    for (int n = 0; n < count; ++n) out.add(at[n]);
    return out;
  }
};

}  // namespace mask_detail

// Cover of the query positions [queries.begin, queries.end).
ISO_FN TileCover tile_cover(const MaskSpec& m, Interval queries) {
  TileCover cover;
  mask_detail::UnionBuilder any;
  bool first = true;
  // Joins one part of the tile: `some` and `every` are the union and the intersection over its rows.
  const auto join = [&](const IntervalList<3>& some, const IntervalList<3>& every) {
    for (int n = 0; n < some.count; ++n) any.insert(some.at[n]);
    cover.all = first ? every : mask_detail::intersect_lists(cover.all, every);
    first = false;
  };
  const Interval context{0, m.context_end}, valid{m.history_begin, m.history_end};
  const auto shared = [&](Interval history) {
    IntervalList<3> x;
    x.add(context);
    x.add(history);
    return x;
  };

  const Interval context_rows = intersect(queries, context);
  if (!context_rows.empty()) join(shared(valid), shared(valid));

  const Interval history_rows = is_plain(m) ? queries : intersect(queries, valid);
  if (!history_rows.empty()) {
    const Interval low = history_seen(m, history_rows.begin), high = history_seen(m, history_rows.end - 1);
    // The rows' windows are one shape moving right: their union spans from the first row's left edge to the last row's right
    // edge, their intersection is that of the first and the last.
    Interval span = valid;
    if (m.history_kind == HistoryKind::causal) span = high;
    if (m.history_kind == HistoryKind::window)
      span = intersect(valid, {history_rows.begin - m.window_left, history_rows.end + m.window_right});
    IntervalList<3> some, every;
    some.add(context);
    some.add(span);
    every.add(context);
    every.add(intersect(low, high));
    join(some, every);
  }

  const Interval candidate_rows = intersect(queries, {m.candidate_begin, m.candidate_end});
  if (!is_plain(m) && !candidate_rows.empty()) {
    const i32 last = candidate_rows.end - 1;
    const Interval low{group_begin(m, candidate_rows.begin), group_end(m, candidate_rows.begin)};
    const Interval high{group_begin(m, last), group_end(m, last)};
    IntervalList<3> some = shared(valid), every = shared(valid);
    some.add({low.begin, high.end});
    if (low.begin == high.begin) every.add(low);
    join(some, every);
  }

  // Padding rows see nothing.
  if (!is_plain(m) && context_rows.size() + history_rows.size() + candidate_rows.size() < queries.size())
    cover.all = IntervalList<3>{};
  cover.any = any.list();
  return cover;
}

ISO_FN TileClass classify(const TileCover& cover, Interval keys) {
  if (keys.empty() || !cover.any.meets(keys)) return TileClass::skip;
  return cover.all.covers(keys) ? TileClass::full : TileClass::partial;
}

// Class of the tile queries x keys (positions).
ISO_FN TileClass classify_tile(const MaskSpec& m, Interval queries, Interval keys) {
  return classify(tile_cover(m, queries), keys);
}

// Smallest interval that holds every key seen by `queries`.
ISO_FN Interval kv_range(const MaskSpec& m, Interval queries) {
  const IntervalList<8> any = tile_cover(m, queries).any;
  return any.count == 0 ? Interval{} : Interval{any.at[0].begin, any.at[any.count - 1].end};
}

// Number of visible (query, key) pairs, for `queries` of one sequence.
ISO_FN i64 visible_pairs(const MaskSpec& m, Interval queries) {
  i64 pairs = 0;
  for (i32 p = queries.begin; p < queries.end; ++p) pairs += row_intervals(m, p).size();
  return pairs;
}

}  // namespace ISO_TARGET
}  // namespace iso
