// KvWalk visits exactly the tiles that some row sees, and nothing else, for every small mask and random large ones.
#include "core/schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "core/mask_brute_force.h"

namespace iso {
namespace {

// The walk counted out: pieces of the grid, clipped to where context or valid history stands, that some row sees.
std::vector<KvTile> expected_walk(const MaskSpec& m, Interval queries, i32 tile_n, const VisibleTable& table) {
  const auto readable = [&](i32 j) {
    const Role role = role_at(m, j);
    return j < m.seqlen_kv && (role == Role::context || role == Role::history);
  };
  std::vector<KvTile> out;
  for (i32 j = 0; j < m.seqlen_kv;) {
    if (!readable(j)) {
      ++j;
      continue;
    }
    Interval keys{j, j};
    do ++keys.end;
    while (keys.end % tile_n != 0 && readable(keys.end));
    const i64 seen = table.count(queries, keys);
    if (seen > 0)
      out.push_back({keys, seen == static_cast<i64>(queries.size()) * keys.size() ? TileClass::full : TileClass::partial});
    j = keys.end;
  }
  return out;
}

testing::AssertionResult walk_holds(const MaskSpec& m, Interval queries, i32 tile_n, const VisibleTable& table) {
  KvWalk walk(m, queries, tile_n);
  KvTile tile;
  for (const KvTile& expected : expected_walk(m, queries, tile_n, table)) {
    if (!walk.next(tile))
      return testing::AssertionFailure() << "no tile " << expected.keys << " for " << queries << " of " << m;
    if (tile.keys.begin != expected.keys.begin || tile.keys.end != expected.keys.end)
      return testing::AssertionFailure() << tile.keys << " instead of " << expected.keys << " for " << queries << " of "
                                         << m;
    if (tile.tile_class != expected.tile_class)
      return testing::AssertionFailure() << "class of " << tile.keys << " for " << queries << " of " << m;
  }
  if (walk.next(tile))
    return testing::AssertionFailure() << "extra tile " << tile.keys << " for " << queries << " of " << m;
  return testing::AssertionSuccess();
}

testing::AssertionResult candidate_keys_hold(const MaskSpec& m, Interval queries, const VisibleTable& table) {
  Interval seen;
  for (i32 j = 0; j < m.seqlen_kv; ++j)
    if (role_at(m, j) == Role::candidate && table.count(queries, {j, j + 1}) > 0)
      seen = {seen.empty() ? j : seen.begin, j + 1};
  const Interval claimed = candidate_keys(m, queries);
  if (claimed.size() == seen.size() && (seen.empty() || claimed.begin == seen.begin)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << claimed << " instead of " << seen << " for " << queries << " of " << m;
}

TEST(KvWalk, EverySmallMask) {
  i64 walks = 0;
  for_every_small_mask({2, 3, 1, 3, 2, 0}, [&](const MaskSpec& m) {
    const Interval positions = all_positions(m, 2);
    const VisibleTable table(m, positions);
    for (i32 begin = positions.begin; begin < positions.end; ++begin) {
      for (i32 end = begin; end <= positions.end; ++end) {
        for (const i32 tile_n : {1, 2, 3, 64}) ASSERT_TRUE(walk_holds(m, {begin, end}, tile_n, table));
        ASSERT_TRUE(candidate_keys_hold(m, {begin, end}, table));
        ++walks;
      }
    }
  });
  EXPECT_GT(walks, 500000);
}

TEST(KvWalk, RandomLargeMasks) {
  EXPECT_TRUE(rc::check("the walk equals counting", [] {
    const MaskSpec m = random_mask(300);
    const Interval positions = all_positions(m, 70);
    const Interval queries = random_part(positions);
    const VisibleTable table(m, positions);
    const auto walk = walk_holds(m, queries, *rc::gen::inRange<i32>(1, 130), table);
    if (!walk) RC_FAIL(walk.message());
    const auto candidates = candidate_keys_hold(m, queries, table);
    if (!candidates) RC_FAIL(candidates.message());
  }));
}

// Isolated candidates must not cost a visit to other candidates: a tile of candidates walks context and history only.
TEST(KvWalk, CandidatesWalkOnlyWhatTheyShare) {
  MaskSpec m;
  m.context_end = 2;
  m.history_begin = 2;
  m.history_end = m.history_end_slot = m.candidate_begin = 100;
  m.candidate_end = m.seqlen_kv = 1000;
  KvWalk walk(m, {100, 164}, 64);
  KvTile tile;
  ASSERT_TRUE(walk.next(tile));
  EXPECT_EQ(tile.keys.end, 64);
  EXPECT_EQ(tile.tile_class, TileClass::full);
  ASSERT_TRUE(walk.next(tile));
  EXPECT_EQ(tile.keys.end, 100);
  EXPECT_FALSE(walk.next(tile));
  EXPECT_EQ(candidate_keys(m, {100, 164}).size(), 64);
}

}  // namespace
}  // namespace iso
