#include "plan/visible_pairs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <utility>

#include "plan/plan.h"

namespace iso {
namespace {

i32 up_to(i32 limit) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<i32>(0, limit + 1)); }

// Up to `longest` queries and keys.
Sequence random_sequence(i32 longest) {
  Sequence s;
  MaskSpec& m = s.mask;
  s.seqlen_kv = m.seqlen_kv = up_to(longest);
  if (*rc::gen::arbitrary<bool>()) {
    m.context_end = up_to(m.seqlen_kv);
    m.history_end_slot = m.context_end + up_to(m.seqlen_kv - m.context_end);
    m.history_begin = m.context_end + up_to(m.history_end_slot - m.context_end);
    m.history_end = m.history_begin + up_to(m.history_end_slot - m.history_begin);
    m.candidate_begin = m.history_end_slot + up_to(m.seqlen_kv - m.history_end_slot);
    m.candidate_end = m.candidate_begin + up_to(m.seqlen_kv - m.candidate_begin);
  } else {
    m.history_end = m.history_end_slot = m.candidate_begin = m.candidate_end = m.seqlen_kv;
  }
  m.candidate_group_size = 1 + up_to(longest / 4);
  m.history_kind = static_cast<HistoryKind>(up_to(2));
  m.window_left = *rc::gen::arbitrary<bool>() ? up_to(longest / 3) : kUnlimited;
  m.window_right = *rc::gen::arbitrary<bool>() ? up_to(longest / 3) : kUnlimited;
  if (is_plain(m)) {
    s.seqlen_q = up_to(longest);
    m.query_offset = up_to(2 * longest) - longest;
  } else {
    s.seqlen_q = up_to(m.seqlen_kv);
    m.query_offset = up_to(m.seqlen_kv - s.seqlen_q);
  }
  return s;
}

constexpr i64 kHeads = 2;

void give_intervals(Sequence& s, MaskArrays& arrays) {
  s.intervals.count = 1 + up_to(2);
  const bool shared = *rc::gen::arbitrary<bool>();
  for (i64 row = 0; row < (shared ? 1 : kHeads) * s.seqlen_q; ++row) {
    std::vector<i32> ends(2 * static_cast<std::size_t>(s.intervals.count));
    for (i32& end : ends) end = up_to(s.seqlen_kv);
    std::sort(ends.begin(), ends.end());
    arrays.intervals.insert(arrays.intervals.end(), ends.begin(), ends.end());
  }
  arrays.intervals.push_back(0);
  s.intervals.data = arrays.intervals.data();
  s.intervals.stride_row = 2 * s.intervals.count;
  s.intervals.stride_head = shared ? 0 : s.intervals.stride_row * s.seqlen_q;
}

void give_blocks(Sequence& s, MaskArrays& arrays) {
  const bool shared = *rc::gen::arbitrary<bool>(), bounds = *rc::gen::arbitrary<bool>();
  BlockLists& b = s.blocks;
  b.block_n = 64 * (1 + up_to(1));
  b.block_m = bounds ? b.block_n : 64 * (1 + up_to(1));
  const i32 m_blocks = ceil_div(s.seqlen_q, b.block_m), n_blocks = ceil_div(s.seqlen_kv, b.block_n);
  for (i64 head = 0; head < (shared ? 1 : kHeads); ++head) {
    for (i32 m = 0; m < m_blocks; ++m) {
      arrays.block_begin.push_back(static_cast<i64>(arrays.block_entries.size()));
      for (i32 n = 0; n < n_blocks; ++n)
        if (const BlockKind kind = static_cast<BlockKind>(up_to(3)); kind != BlockKind::none)
          arrays.block_entries.push_back({n, kind});
    }
    arrays.block_begin.push_back(static_cast<i64>(arrays.block_entries.size()));
  }
  b.begin = arrays.block_begin.data();
  b.entries = arrays.block_entries.data();
  b.stride_head = shared ? 0 : m_blocks + 1;
  if (!bounds) return;
  const i32 blocks = max_of(m_blocks, n_blocks);
  for (i64 n = 0; n < 2 * kHeads * blocks; ++n) arrays.valid_bounds.push_back(up_to(b.block_n));
  arrays.valid_bounds.push_back(0);
  b.valid_upper = arrays.valid_bounds.data();
  b.valid_lower = b.valid_upper + kHeads * blocks;
  b.valid_stride_head = blocks;
}

i64 counted(const Sequence& s, i64 head) {
  i64 pairs = 0;
  for (i32 row = 0; row < s.seqlen_q; ++row)
    for (i32 key = 0; key < s.seqlen_kv; ++key) pairs += visible(s, head, row, key);
  return pairs;
}

RC_GTEST_PROP(VisiblePairs, OfMasksEqualCountingEachPair, ()) {
  const Sequence s = random_sequence(24);
  RC_TAG(is_plain(s.mask));
  RC_ASSERT(count_visible_pairs(s, 0) == counted(s, 0));
  RC_ASSERT(heads_see_alike(s));
}

RC_GTEST_PROP(VisiblePairs, OfIntervalsAndListsEqualCountingEachPair, ()) {
  Sequence s = random_sequence(200);
  MaskArrays arrays;
  const bool intervals = *rc::gen::arbitrary<bool>(), blocks = *rc::gen::arbitrary<bool>();
  if (intervals) give_intervals(s, arrays);
  if (blocks) give_blocks(s, arrays);
  RC_TAG(intervals, blocks);
  i64 sum = 0;
  for (i64 head = 0; head < kHeads; ++head) {
    const i64 pairs = counted(s, head);
    RC_ASSERT(count_visible_pairs(s, head) == pairs);
    if (heads_see_alike(s)) RC_ASSERT(pairs == counted(s, 0));
    sum += pairs;
  }
  Problem p;
  p.num_heads_q = kHeads;
  RC_ASSERT(make_plan(p, {s}, std::move(arrays), {}).visible_pairs == sum / kHeads);
}

// Without heads there need be no lists to look at.
TEST(VisiblePairs, WithoutHeadsAreNone) {
  Sequence s;
  s.seqlen_q = s.seqlen_kv = s.mask.seqlen_kv = 100;
  s.blocks.block_m = s.blocks.block_n = 64;
  EXPECT_EQ(make_plan({}, {s}, {}, {}).visible_pairs, 0);
}

TEST(VisiblePairs, DoNotOverflow) {
  Sequence s;
  s.seqlen_q = s.seqlen_kv = s.mask.seqlen_kv = kMaxSeqlen - 1;
  s.mask.history_end = s.mask.history_end_slot = s.mask.candidate_begin = s.mask.candidate_end = s.seqlen_kv;
  const i64 n = s.seqlen_kv;
  EXPECT_EQ(count_visible_pairs(s, 0), n * n);
  s.mask.history_kind = HistoryKind::causal;
  EXPECT_EQ(count_visible_pairs(s, 0), n * (n + 1) / 2);
  s.mask.history_kind = HistoryKind::bidirectional;
  Problem p;
  p.num_heads_q = 3;
  EXPECT_EQ(make_plan(p, std::vector<Sequence>(64, s), {}, {}).visible_pairs, INT64_MAX);
}

}  // namespace
}  // namespace iso
