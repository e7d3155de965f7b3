#include "validate/mask.h"

#include <gtest/gtest.h>

#include "support/example_problem.h"

namespace iso {
namespace {

constexpr i64 kDefault = ISOFLASH_DEFAULT;

isoflash_mask default_mask() {
  isoflash_problem p;
  isoflash_problem_init(&p);
  return p.mask;
}

Expected<MaskSpec> resolved(const isoflash_mask& mask, i32 seqlen_q, i32 seqlen_kv) {
  std::vector<Sequence> sequences(1);
  sequences[0].seqlen_q = sequences[0].slot_q = seqlen_q;
  sequences[0].seqlen_kv = sequences[0].slot_kv = seqlen_kv;
  if (auto done = resolve_masks(mask, sequences); !done) return tl::unexpected(done.error());
  return sequences[0].mask;
}

// The table of isoflash_mask, row by row: what is given, and the parts of a sequence of 10 keys that come of it.
struct Row {
  const char* what;
  i64 num_context, history_len, num_candidates, candidate_begin;  // given, or kDefault
  int error;                                                      // 0, or the id
  i32 context_end, history_end_slot, begin, end;                  // resolved
};

constexpr int kSpan = errors::CandidateSpanMismatch::kId, kOverlap = errors::PartOverlap::kId,
              kNegative = errors::NegativePart::kId;
constexpr Row kTable[] = {
    {"nothing given: all history", kDefault, kDefault, kDefault, kDefault, 0, 0, 10, 10, 10},
    {"context: the rest is history", 2, kDefault, kDefault, kDefault, 0, 2, 10, 10, 10},
    {"context and candidates: history between", 2, kDefault, 3, kDefault, 0, 2, 7, 7, 10},
    {"context and history: candidates after", 2, 5, kDefault, kDefault, 0, 2, 7, 7, 10},
    {"history of everything: no candidates", kDefault, 10, kDefault, kDefault, 0, 0, 10, 10, 10},
    {"no history: all candidates", 0, 0, kDefault, kDefault, 0, 0, 0, 0, 10},
    {"all three, adding up", 2, 5, 3, kDefault, 0, 2, 7, 7, 10},
    {"all three, too few", 2, 5, 2, kDefault, kSpan, 0, 0, 0, 0},
    {"all three, too many", 2, 5, 4, kDefault, kSpan, 0, 0, 0, 0},
    {"more candidates than keys", kDefault, kDefault, 11, kDefault, kSpan, 0, 0, 0, 0},
    {"more context than keys", 11, kDefault, kDefault, kDefault, kSpan, 0, 0, 0, 0},
    {"more history than keys", 2, 9, kDefault, kDefault, kSpan, 0, 0, 0, 0},
    {"context of everything", 10, kDefault, kDefault, kDefault, 0, 10, 10, 10, 10},
    {"candidate_begin alone: history before, candidates after", 2, kDefault, kDefault, 6, 0, 2, 6, 6, 10},
    {"candidate_begin with a gap after the history", 2, 3, kDefault, 6, 0, 2, 5, 6, 10},
    {"candidate_begin with padding at the end", 2, 4, 3, 6, 0, 2, 6, 6, 9},
    {"candidate_begin at the end: none", kDefault, kDefault, kDefault, 10, 0, 0, 10, 10, 10},
    {"candidate_begin inside the history", 2, 5, 3, 6, kOverlap, 0, 0, 0, 0},
    {"candidate_begin inside the context", 4, kDefault, 3, 2, kSpan, 0, 0, 0, 0},
    {"candidates beyond the end", 2, 4, 5, 6, kSpan, 0, 0, 0, 0},
    {"candidate_begin beyond the end", kDefault, kDefault, kDefault, 11, kSpan, 0, 0, 0, 0},
    {"huge numbers do not wrap around", i64{1} << 62, i64{1} << 62, i64{1} << 62, kDefault, kSpan, 0, 0, 0, 0},
    {"negative context", -1, kDefault, kDefault, kDefault, kNegative, 0, 0, 0, 0},
    {"negative candidates", kDefault, kDefault, -3, kDefault, kNegative, 0, 0, 0, 0},
};

TEST(MaskDefaults, PartsFollowTheTable) {
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.what);
    isoflash_mask mask = default_mask();
    mask.num_context.value = row.num_context;
    mask.history_len.value = row.history_len;
    mask.num_candidates.value = row.num_candidates;
    mask.candidate_begin.value = row.candidate_begin;
    const auto m = resolved(mask, 0, 10);
    ASSERT_EQ(m ? 0 : m.error().id(), row.error) << (m ? "" : m.error().message());
    if (!m) continue;
    EXPECT_EQ(m->context_end, row.context_end);
    EXPECT_EQ(m->history_end_slot, row.history_end_slot);
    EXPECT_EQ(m->history_begin, row.context_end) << "all of the slot is valid unless history_begin says otherwise";
    EXPECT_EQ(m->history_end, row.history_end_slot);
    EXPECT_EQ(m->candidate_begin, row.begin);
    EXPECT_EQ(m->candidate_end, row.end);
    EXPECT_EQ(m->seqlen_kv, 10);
    EXPECT_EQ(m->candidate_group_size, 1);
  }
}

TEST(MaskDefaults, ValidHistoryLiesInItsSlot) {
  isoflash_mask mask = default_mask();
  mask.num_context.value = 2;
  mask.history_len.value = 5;
  const struct {
    i64 begin, end;
    bool accepted;
  } cases[] = {{2, 7, true},        {4, 7, true},  {2, 5, true},  {4, 4, true}, {kDefault, 3, true},
               {6, kDefault, true}, {1, 7, false}, {2, 8, false}, {5, 4, false}};
  for (const auto& x : cases) {
    SCOPED_TRACE(testing::Message() << x.begin << " " << x.end);
    mask.history_begin.value = x.begin;
    mask.history_end.value = x.end;
    const auto m = resolved(mask, 10, 10);
    ASSERT_EQ(m.has_value(), x.accepted);
    if (!m) {
      EXPECT_EQ(m.error().id(), errors::HistoryRange::kId);
    } else {
      EXPECT_EQ(m->history_begin, x.begin == kDefault ? 2 : x.begin);
      EXPECT_EQ(m->history_end, x.end == kDefault ? 7 : x.end);
    }
  }
}

TEST(MaskDefaults, QueriesEndWhereTheKeysEnd) {
  EXPECT_EQ(resolved(default_mask(), 4, 10)->query_offset, 6);
  EXPECT_EQ(resolved(default_mask(), 10, 4)->query_offset, -6) << "history alone has queries before its first key";
  isoflash_mask mask = default_mask();
  mask.num_context.value = 1;
  const auto m = resolved(mask, 10, 4);
  ASSERT_FALSE(m) << "with context every query needs a position among the keys";
  EXPECT_EQ(m.error().id(), errors::QueryOffsetRange::kId);
}

TEST(MaskDefaults, QueryOffsetHasLimits) {
  isoflash_mask mask = default_mask();
  for (const i64 offset : {i64{0}, i64{7}, i64{kMaxSeqlen - 4}, i64{10 - kMaxSeqlen}}) {
    mask.query_offset.value = offset;
    EXPECT_TRUE(resolved(mask, 4, 10)) << offset;
  }
  for (const i64 offset : {i64{kMaxSeqlen - 3}, i64{9 - kMaxSeqlen}, i64{1} << 62, -(i64{1} << 62)}) {
    mask.query_offset.value = offset;
    EXPECT_FALSE(resolved(mask, 4, 10)) << offset;
    EXPECT_TRUE(resolved(mask, 0, 10)) << "no query, no position to be wrong";
  }
  mask.num_candidates.value = 3;
  for (const i64 offset : {-1, 0, 6, 7}) {
    mask.query_offset.value = offset;
    EXPECT_EQ(resolved(mask, 4, 10).has_value(), offset >= 0 && offset <= 6) << offset;
  }
}

TEST(MaskDefaults, WindowsAreDistancesAndClamp) {
  isoflash_mask mask = default_mask();
  mask.history_kind = ISOFLASH_HISTORY_WINDOW;
  mask.window_left = 3;
  mask.window_right = i64{1} << 60;
  const auto m = resolved(mask, 10, 10);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->window_left, 3);
  EXPECT_EQ(m->window_right, kUnlimited);
  EXPECT_TRUE(visible(*m, 5, 2));
  EXPECT_FALSE(visible(*m, 5, 1));
  EXPECT_TRUE(visible(*m, 0, 9));
}

TEST(MaskDefaults, UnlimitedReachesEveryKeyFromTheFarthestQuery) {
  isoflash_mask mask = default_mask();
  mask.history_kind = ISOFLASH_HISTORY_WINDOW;
  for (const i64 offset : {i64{kMaxSeqlen - 4}, i64{10 - kMaxSeqlen}}) {
    mask.query_offset.value = offset;
    const auto m = resolved(mask, 4, 10);
    ASSERT_TRUE(m);
    for (i32 row = 0; row < 4; ++row)
      EXPECT_EQ(row_intervals(*m, m->query_offset + row).size(), 10) << "offset " << offset << " row " << row;
  }
}

TEST(MaskDefaults, ValuesPerSequence) {
  test::Arena arena;
  isoflash_mask mask = default_mask();
  mask.num_context.value = 1;
  mask.history_len.values = arena.int32({3, 0, 5});
  mask.num_candidates.values = arena.int32({9, 2, 0, 7, 4});
  mask.num_candidates.values.shape[0] = 3;
  mask.num_candidates.values.strides[0] = 2;  // 9, 0, 4: any stride is read
  std::vector<Sequence> sequences(3);
  const i32 lengths[] = {13, 1, 10};
  for (int b = 0; b < 3; ++b) sequences[b].seqlen_kv = lengths[b];
  ASSERT_TRUE(resolve_masks(mask, sequences));
  EXPECT_EQ(sequences[0].mask.candidate_begin, 4);
  EXPECT_EQ(sequences[0].mask.candidate_end, 13);
  EXPECT_EQ(sequences[1].mask.context_end, 1);
  EXPECT_EQ(sequences[1].mask.candidate_end, 1);
  EXPECT_EQ(sequences[2].mask.candidate_begin, 6);

  mask.num_candidates.values.strides[0] = 0;  // one value for all
  const auto done = resolve_masks(mask, sequences);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message().find("sequence 1"), std::string::npos) << done.error().message();
}

}  // namespace
}  // namespace iso
