#include "plan/visible_pairs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "plan/plan.h"

namespace iso {
namespace {

Sequence random_sequence() {
  Sequence s;
  MaskSpec& m = s.mask;
  const auto up_to = [](i32 limit) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<i32>(0, limit + 1)); };
  s.seqlen_kv = m.seqlen_kv = up_to(24);
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
  m.candidate_group_size = 1 + up_to(5);
  m.history_kind = static_cast<HistoryKind>(up_to(2));
  m.window_left = *rc::gen::arbitrary<bool>() ? up_to(8) : kUnlimited;
  m.window_right = *rc::gen::arbitrary<bool>() ? up_to(8) : kUnlimited;
  if (is_plain(m)) {
    s.seqlen_q = up_to(24);
    m.query_offset = up_to(60) - 30;
  } else {
    s.seqlen_q = up_to(m.seqlen_kv);
    m.query_offset = up_to(m.seqlen_kv - s.seqlen_q);
  }
  return s;
}

RC_GTEST_PROP(VisiblePairs, EqualCountingEachPair, ()) {
  const Sequence s = random_sequence();
  i64 pairs = 0;
  for (i32 row = 0; row < s.seqlen_q; ++row)
    for (i32 key = 0; key < s.seqlen_kv; ++key) pairs += visible(s.mask, s.mask.query_offset + row, key);
  RC_TAG(is_plain(s.mask));
  RC_ASSERT(count_visible_pairs(s) == pairs);
}

TEST(VisiblePairs, DoNotOverflow) {
  Sequence s;
  s.seqlen_q = s.seqlen_kv = s.mask.seqlen_kv = kMaxSeqlen - 1;
  s.mask.history_end = s.mask.history_end_slot = s.mask.candidate_begin = s.mask.candidate_end = s.seqlen_kv;
  const i64 n = s.seqlen_kv;
  EXPECT_EQ(count_visible_pairs(s), n * n);
  s.mask.history_kind = HistoryKind::causal;
  EXPECT_EQ(count_visible_pairs(s), n * (n + 1) / 2);
  s.mask.history_kind = HistoryKind::bidirectional;
  EXPECT_EQ(make_plan({}, std::vector<Sequence>(64, s), {}).visible_pairs, INT64_MAX);
}

}  // namespace
}  // namespace iso
