// visible() against the words of the contract, and everything derived from visible() against counting.
#include "core/mask.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "core/mask_brute_force.h"

namespace iso {
namespace {

template <int kCapacity>
testing::AssertionResult well_formed(const IntervalList<kCapacity>& list) {
  if (list.count > kCapacity) return testing::AssertionFailure() << "more intervals than fit";
  for (int n = 0; n < list.count; ++n) {
    if (list.at[n].empty()) return testing::AssertionFailure() << "empty interval " << list.at[n];
    if (n > 0 && list.at[n].begin <= list.at[n - 1].end)
      return testing::AssertionFailure() << list.at[n - 1] << " and " << list.at[n] << " are out of order or touch";
  }
  return testing::AssertionSuccess();
}

// True if the closed forms for single rows and single keys equal the table.
testing::AssertionResult rows_and_columns_hold(const MaskSpec& m, Interval queries, const VisibleTable& table) {
  for (i32 p = queries.begin; p < queries.end; ++p) {
    const RowIntervals row = row_intervals(m, p);
    if (auto form = well_formed(row); !form) return form << " in row_intervals at " << p << " of " << m;
    for (i32 j = -1; j <= m.seqlen_kv; ++j)
      if (row.contains(j) != (j >= 0 && j < m.seqlen_kv && table.sees(p, j)))
        return testing::AssertionFailure() << "row_intervals at query " << p << ", key " << j << " of " << m;
  }
  for (i32 j = -1; j <= m.seqlen_kv; ++j) {
    const ColIntervals column = col_intervals(m, j, queries);
    if (auto form = well_formed(column); !form) return form << " in col_intervals at " << j << " of " << m;
    for (i32 p = queries.begin - 1; p <= queries.end; ++p)
      if (column.contains(p) != (queries.contains(p) && j >= 0 && j < m.seqlen_kv && table.sees(p, j)))
        return testing::AssertionFailure() << "col_intervals at key " << j << ", query " << p << " of " << m;
  }
  if (visible_pairs(m, queries) != table.count(queries, {0, m.seqlen_kv}))
    return testing::AssertionFailure() << "visible_pairs of " << queries << " of " << m;
  return testing::AssertionSuccess();
}

// True if the cover of the query tile, its range, and the class of each key tile from `key_tiles` equal the table.
template <class KeyTiles>
testing::AssertionResult cover_holds(const MaskSpec& m, Interval queries, const VisibleTable& table,
                                     const KeyTiles& key_tiles) {
  const TileCover cover = tile_cover(m, queries);
  if (auto form = well_formed(cover.any); !form) return form << " in any of " << queries << " of " << m;
  if (auto form = well_formed(cover.all); !form) return form << " in all of " << queries << " of " << m;
  Interval range;
  for (i32 j = 0; j < m.seqlen_kv; ++j) {
    const i64 seen = table.count(queries, {j, j + 1});
    if (cover.any.contains(j) != (seen > 0))
      return testing::AssertionFailure() << "any of " << queries << ", key " << j << " of " << m;
    if (!queries.empty() && cover.all.contains(j) != (seen == queries.size()))
      return testing::AssertionFailure() << "all of " << queries << ", key " << j << " of " << m;
    if (seen > 0) range = {range.empty() ? j : range.begin, j + 1};
  }
  const Interval claimed = kv_range(m, queries);
  if (claimed.begin != range.begin || claimed.end != range.end)
    return testing::AssertionFailure() << "kv_range " << claimed << " instead of " << range << " of " << m;
  for (const Interval keys : key_tiles) {
    const i64 seen = table.count(queries, keys);
    const TileClass expected = seen == 0                                                ? TileClass::skip
                               : seen == static_cast<i64>(queries.size()) * keys.size() ? TileClass::full
                                                                                        : TileClass::partial;
    if (classify_tile(m, queries, keys) != expected)
      return testing::AssertionFailure() << "class of " << queries << " x " << keys << " of " << m;
  }
  return testing::AssertionSuccess();
}

std::vector<Interval> all_intervals(Interval whole) {
  std::vector<Interval> out;
  for (i32 begin = whole.begin; begin <= whole.end; ++begin)
    for (i32 end = begin; end <= whole.end; ++end) out.push_back({begin, end});
  return out;
}

// Context [0, 2), history slot [2, 7) of which [3, 6) is valid, gap [7, 8), candidates [8, 13) in groups of 2, tail.
MaskSpec example_mask() {
  MaskSpec m;
  m.context_end = 2;
  m.history_end_slot = 7;
  m.history_begin = 3;
  m.history_end = 6;
  m.candidate_begin = 8;
  m.candidate_end = 13;
  m.candidate_group_size = 2;
  m.seqlen_kv = 14;
  return m;
}

std::string picture(const MaskSpec& m) {
  std::string out;
  for (i32 p = 0; p < m.seqlen_kv; ++p) {
    for (i32 j = 0; j < m.seqlen_kv; ++j) out += visible(m, p, j) ? '#' : '.';
    out += '\n';
  }
  return out;
}

TEST(Mask, PictureOfTheContract) {
  MaskSpec m = example_mask();
  m.history_kind = HistoryKind::causal;
  EXPECT_EQ(picture(m),
            "##.###........\n"  // context
            "##.###........\n"
            "..............\n"  // padding
            "##.#..........\n"  // history, causal
            "##.##.........\n"
            "##.###........\n"
            "..............\n"  // padding
            "..............\n"  // gap
            "##.###..##....\n"  // candidates, groups of 2
            "##.###..##....\n"
            "##.###....##..\n"
            "##.###....##..\n"
            "##.###......#.\n"  // the last group is shorter
            "..............\n");
}

TEST(Mask, WindowCountsPositions) {
  MaskSpec m;
  m.seqlen_kv = m.history_end_slot = m.history_end = 5;
  m.history_kind = HistoryKind::window;
  m.window_left = 1;
  m.window_right = 2;
  EXPECT_EQ(picture(m),
            "###..\n"
            "####.\n"
            ".####\n"
            "..###\n"
            "...##\n");
}

TEST(Mask, PlainMeansOneWhollyValidHistory) {
  MaskSpec m;
  m.seqlen_kv = m.history_end_slot = m.history_end = m.candidate_begin = m.candidate_end = 4;
  EXPECT_TRUE(is_plain(m));
  EXPECT_EQ(role_at(m, -3), Role::history);
  EXPECT_EQ(role_at(m, 9), Role::history);
  MaskSpec shorter = m, context = m, candidates = m;
  shorter.history_end = 3;
  context.context_end = context.history_begin = 1;
  candidates.candidate_begin = candidates.history_end = candidates.history_end_slot = 3;
  for (const MaskSpec& other : {shorter, context, candidates}) {
    EXPECT_FALSE(is_plain(other)) << other;
    EXPECT_EQ(role_at(other, -1), Role::padding) << other;
    EXPECT_EQ(role_at(other, 4), Role::padding) << other;
  }
}

TEST(Mask, PlainCausalIsBottomRightOutsideTheKeys) {
  MaskSpec m;
  m.seqlen_kv = m.history_end_slot = m.history_end = 3;
  m.history_kind = HistoryKind::causal;
  EXPECT_FALSE(visible(m, -1, 0));
  EXPECT_TRUE(visible(m, 7, 2));
  EXPECT_FALSE(visible(m, 7, 3));
  EXPECT_EQ(row_intervals(m, -1).count, 0);
}

TEST(Mask, RowsAndColumnsOfEverySmallMask) {
  int masks = 0;
  for_every_small_mask({2, 3, 2, 4, 3, 1}, [&](const MaskSpec& m) {
    ++masks;
    const Interval queries = all_positions(m, 3);
    ASSERT_TRUE(rows_and_columns_hold(m, queries, VisibleTable(m, queries)));
  });
  EXPECT_GT(masks, 50000);
}

TEST(Mask, CoversOfEverySmallMask) {
  int masks = 0;
  for_every_small_mask({1, 3, 1, 3, 2, 1}, [&](const MaskSpec& m) {
    ++masks;
    const Interval positions = all_positions(m, 2);
    const VisibleTable table(m, positions);
    const std::vector<Interval> key_tiles = all_intervals({0, m.seqlen_kv});
    for (const Interval queries : all_intervals(positions)) ASSERT_TRUE(cover_holds(m, queries, table, key_tiles));
  });
  EXPECT_GT(masks, 10000);
}

TEST(Mask, RandomLargeMasks) {
  EXPECT_TRUE(rc::check("closed forms equal counting", [] {
    const MaskSpec m = random_mask(200);
    const Interval positions = all_positions(m, 70);
    const Interval queries = random_part(positions);
    const VisibleTable table(m, positions);
    std::vector<Interval> key_tiles;
    for (int n = 0; n < 40; ++n) key_tiles.push_back(random_part({0, m.seqlen_kv}));
    const auto cover = cover_holds(m, queries, table, key_tiles);
    if (!cover) RC_FAIL(cover.message());
    const auto lines = rows_and_columns_hold(m, queries, table);
    if (!lines) RC_FAIL(lines.message());
  }));
}

// At the ends of the allowed positions nothing wraps around, and an unlimited window is no limit.
TEST(Mask, LargestPositionsDoNotOverflow) {
  MaskSpec m;
  m.seqlen_kv = m.history_end_slot = m.history_end = kMaxSeqlen;
  m.history_kind = HistoryKind::window;
  for (const i32 p : {-kMaxSeqlen, 0, kMaxSeqlen - 1, 2 * kMaxSeqlen - 2}) {
    EXPECT_TRUE(visible(m, p, 0)) << p;
    EXPECT_TRUE(visible(m, p, kMaxSeqlen - 1)) << p;
    EXPECT_EQ(row_intervals(m, p).size(), kMaxSeqlen) << p;
  }
  const Interval queries{kMaxSeqlen - 64, kMaxSeqlen};
  EXPECT_EQ(classify_tile(m, queries, {0, 64}), TileClass::full);
  EXPECT_EQ(col_intervals(m, kMaxSeqlen - 1, queries).size(), 64);
}

}  // namespace
}  // namespace iso
