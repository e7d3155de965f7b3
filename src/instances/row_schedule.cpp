#include "instances/row_schedule.h"

#include "base/math.h"

namespace iso {
namespace {

// Rows of a CTA: four passes of 256 threads over rows of 128 elements, enough to make the start of a CTA cheap.
constexpr i64 kRowsPerBlock = 256;

}  // namespace

RowScheduleTables make_row_schedule(std::span<const Sequence> sequences, i64 num_heads, const TileOrder& order) {
  RowScheduleTables tables;
  tables.positions_per_block = static_cast<i32>(max_of<i64>(1, kRowsPerBlock / max_of<i64>(1, num_heads)));
  for (const Sequence& s : sequences) {
    const i32 num_tiles = ceil_div(s.seqlen_q, order.positions_per_tile);
    const i64 positions = max_of<i64>(s.slot_q, i64{num_tiles} * order.positions_per_tile);
    const i32 index = static_cast<i32>(tables.sequences.size());
    tables.sequences.push_back({.batch = s.q_batch,
                                .row_begin = s.q_row_begin,
                                .first_tile = tables.num_tiles,
                                .seqlen = s.seqlen_q,
                                .slot = s.slot_q,
                                .num_tiles = num_tiles,
                                .unused = 0});
    tables.num_tiles += num_tiles * (num_heads / order.heads_per_tile);
    for (i64 position = 0; position < positions; position += tables.positions_per_block)
      tables.blocks.push_back({index, static_cast<i32>(position)});
  }
  return tables;
}

}  // namespace iso
