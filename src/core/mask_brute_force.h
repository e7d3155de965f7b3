// For tests: visible() written out as a table, and the masks to try. Everything that mask.h and schedule.h derive in closed
// form is counted here, pair by pair.
#pragma once

#include <rapidcheck.h>

#include <ostream>
#include <vector>

#include "core/mask.h"

namespace iso {

inline std::ostream& operator<<(std::ostream& out, const Interval& x) {
  return out << "[" << x.begin << ", " << x.end << ")";
}

inline std::ostream& operator<<(std::ostream& out, const MaskSpec& m) {
  const char* const kinds[] = {"bidirectional", "causal", "window"};
  return out << "seqlen_kv " << m.seqlen_kv << " context [0, " << m.context_end << ") history slot end "
             << m.history_end_slot << " valid [" << m.history_begin << ", " << m.history_end << ") candidates ["
             << m.candidate_begin << ", " << m.candidate_end << ") groups of " << m.candidate_group_size << " "
             << kinds[static_cast<int>(m.history_kind)] << " window " << m.window_left << ", " << m.window_right;
}

// visible(p, j) for p in `queries` and every key, with sums over rectangles in constant time.
class VisibleTable {
 public:
  VisibleTable(const MaskSpec& mask, Interval queries)
      : queries_(queries), columns_(mask.seqlen_kv + 1), sums_((queries.size() + 1) * columns_) {
    for (i32 p = queries.begin; p < queries.end; ++p) {
      for (i32 j = 0; j < mask.seqlen_kv; ++j) {
        const i64 above = at(p - 1, j);
        at(p, j) = above + at(p, j - 1) - at(p - 1, j - 1) + (visible(mask, p, j) ? 1 : 0);
      }
    }
  }
  bool sees(i32 p, i32 j) const { return count({p, p + 1}, {j, j + 1}) == 1; }
  i64 count(Interval rows, Interval keys) const {
    if (rows.empty() || keys.empty()) return 0;
    return at(rows.end - 1, keys.end - 1) - at(rows.begin - 1, keys.end - 1) - at(rows.end - 1, keys.begin - 1) +
           at(rows.begin - 1, keys.begin - 1);
  }

 private:
  i64& at(i32 p, i32 j) { return sums_[(p - queries_.begin + 1) * columns_ + j + 1]; }
  i64 at(i32 p, i32 j) const { return sums_[(p - queries_.begin + 1) * columns_ + j + 1]; }

  Interval queries_;
  i64 columns_;
  std::vector<i64> sums_;
};

// The sizes that for_every_small_mask runs through, each from 0 (group size from 1) to the number given.
struct SmallSizes {
  i32 context, history, gap, candidates, group, tail;
};

// Calls visit(mask) for every mask of at most these sizes: each valid part of the history slot, each kind, and windows of
// 0, 1, 2 and without limit on either side.
template <class Visit>
void for_every_small_mask(const SmallSizes& sizes, Visit&& visit) {
  const auto with_kinds = [&](MaskSpec m) {
    m.history_kind = HistoryKind::bidirectional;
    visit(m);
    m.history_kind = HistoryKind::causal;
    visit(m);
    m.history_kind = HistoryKind::window;
    for (i32 left : {0, 1, 2, kUnlimited}) {
      for (i32 right : {0, 1, 2, kUnlimited}) {
        m.window_left = left;
        m.window_right = right;
        visit(m);
      }
    }
  };
  const auto with_candidates = [&](MaskSpec m) {
    for (i32 gap = 0; gap <= sizes.gap; ++gap) {
      for (i32 candidates = 0; candidates <= sizes.candidates; ++candidates) {
        for (i32 group = 1; group <= (candidates == 0 ? 1 : sizes.group); ++group) {
          for (i32 tail = 0; tail <= sizes.tail; ++tail) {
            m.candidate_begin = m.history_end_slot + gap;
            m.candidate_end = m.candidate_begin + candidates;
            m.candidate_group_size = group;
            m.seqlen_kv = m.candidate_end + tail;
            with_kinds(m);
          }
        }
      }
    }
  };
  for (i32 context = 0; context <= sizes.context; ++context) {
    for (i32 history = 0; history <= sizes.history; ++history) {
      for (i32 begin = 0; begin <= history; ++begin) {
        for (i32 end = begin; end <= history; ++end) {
          MaskSpec m;
          m.context_end = context;
          m.history_end_slot = context + history;
          m.history_begin = context + begin;
          m.history_end = context + end;
          with_candidates(m);
        }
      }
    }
  }
}

// A random mask of up to about `scale` positions per part. Parts are often absent, so that plain attention is common.
inline MaskSpec random_mask(i32 scale) {
  const auto up_to = [](i32 limit) { return *rc::gen::inRange<i32>(0, limit + 1); };
  const auto sometimes = [&](i32 limit) { return up_to(2) == 0 ? 0 : up_to(limit); };
  MaskSpec m;
  m.context_end = sometimes(scale / 4);
  m.history_end_slot = m.context_end + up_to(scale);
  m.history_begin = m.context_end;
  m.history_end = m.history_end_slot;
  if (up_to(1) == 0) {
    m.history_begin += up_to(m.history_end_slot - m.context_end);
    m.history_end = m.history_begin + up_to(m.history_end_slot - m.history_begin);
  }
  m.candidate_begin = m.history_end_slot + sometimes(scale / 4);
  m.candidate_end = m.candidate_begin + sometimes(scale / 2);
  m.candidate_group_size = 1 + sometimes(scale / 8);
  m.seqlen_kv = m.candidate_end + sometimes(scale / 8);
  m.history_kind = static_cast<HistoryKind>(up_to(2));
  m.window_left = up_to(3) == 0 ? kUnlimited : up_to(scale / 2);
  m.window_right = up_to(3) == 0 ? kUnlimited : up_to(scale / 2);
  return m;
}

// A random part of `whole`, possibly empty.
inline Interval random_part(Interval whole) {
  const i32 begin = *rc::gen::inRange<i32>(whole.begin, whole.end + 1);
  return {begin, *rc::gen::inRange<i32>(begin, whole.end + 1)};
}

// Positions worth asking about: all of the sequence and some on either side.
inline Interval all_positions(const MaskSpec& m, i32 margin) { return {-margin, m.seqlen_kv + margin}; }

}  // namespace iso
