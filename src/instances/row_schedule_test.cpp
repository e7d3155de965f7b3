#include "instances/row_schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "base/math.h"

namespace iso {
namespace {

// Every position of a slot and of a sequence's tiles is in one block; tiles of different sequences do not meet.
RC_GTEST_PROP(RowSchedule, CoversSlotsAndTilesOnce, ()) {
  const i64 heads_per_tile = *rc::gen::inRange<i64>(1, 6);
  const i64 num_heads = heads_per_tile * *rc::gen::inRange<i64>(1, 80);
  const TileOrder order{.tile_rows = 128,
                        .positions_per_tile = *rc::gen::inRange(1, 128 / static_cast<i32>(heads_per_tile) + 1),
                        .heads_per_tile = static_cast<i32>(heads_per_tile)};
  std::vector<Sequence> sequences(*rc::gen::inRange(0, 8));
  for (Sequence& s : sequences) {
    s.seqlen_q = *rc::gen::inRange(0, 500);
    s.slot_q = s.seqlen_q + *rc::gen::inRange(0, 300);
  }
  const RowScheduleTables tables = make_row_schedule(sequences, num_heads, order);
  RC_ASSERT(tables.sequences.size() == sequences.size());

  std::vector<std::map<i32, int>> covered(sequences.size());
  for (const RowBlock& block : tables.blocks)
    for (i32 p = 0; p < tables.positions_per_block; ++p) ++covered.at(block.sequence)[block.position + p];
  i64 next_tile = 0;
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    const SequenceRows& s = tables.sequences[b];
    RC_ASSERT(s.num_tiles == ceil_div(s.seqlen, order.positions_per_tile));
    RC_ASSERT(s.first_tile == next_tile);
    next_tile += s.num_tiles * num_heads / heads_per_tile;
    const i32 positions = max_of(s.slot, s.num_tiles * order.positions_per_tile);
    for (i32 p = 0; p < positions; ++p) RC_ASSERT(covered[b][p] == 1);
    for (const auto& [p, times] : covered[b]) RC_ASSERT(times <= 1 && p < positions + tables.positions_per_block);
  }
  RC_ASSERT(tables.num_tiles == next_tile);
}

TEST(RowSchedule, SizesOfARankerBatch) {
  std::vector<Sequence> sequences(64);
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    sequences[b].q_batch = static_cast<i64>(b);
    sequences[b].seqlen_q = sequences[b].slot_q = 1152;
  }
  const TileOrder order{.tile_rows = 80, .positions_per_tile = 16, .heads_per_tile = 5};
  const RowScheduleTables tables = make_row_schedule(sequences, 20, order);
  EXPECT_EQ(tables.positions_per_block, 12);
  EXPECT_EQ(tables.blocks.size(), 64u * 96u);
  EXPECT_EQ(tables.num_tiles, 64 * 4 * 72);
}

}  // namespace
}  // namespace iso
