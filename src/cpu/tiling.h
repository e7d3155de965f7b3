// How the work of a call is cut, the same for every level and every number of threads, so that results are too.
//
// A query tile is a run of positions times the query heads of one KV head (GQA heads share the tile's keys): row r of the
// tile is position r / heads of the run and head r % heads. Key tiles are kTileN keys.
#pragma once

#include "core/problem.h"
#include "core/schedule.h"

namespace iso::cpu {

inline constexpr i64 kTileRows = 192;  // a multiple of every level's panel width
inline constexpr i32 kTileN = 128;

inline namespace ISO_TARGET {

// Query heads of one tile: the whole group, or equal parts of it if it has more than kTileRows heads.
inline i64 head_chunks(const Problem& p) { return max_of<i64>(1, ceil_div<i64>(group_size(p), kTileRows)); }
inline i64 heads_per_tile(const Problem& p) { return max_of<i64>(1, ceil_div(group_size(p), head_chunks(p))); }
// Query positions of one tile.
inline i64 tile_m(const Problem& p) { return kTileRows / heads_per_tile(p); }

inline i64 num_query_tiles(const Problem& p, const Sequence& s) {
  return ceil_div<i64>(s.seqlen_q, tile_m(p)) * head_chunks(p);
}

// One query tile of a sequence and KV head.
struct QueryTile {
  i64 first_row = 0;  // row of the sequence at which it starts
  i64 positions = 0;  // rows of the sequence
  i64 head = 0;       // first query head
  i64 heads = 0;
};

inline QueryTile query_tile(const Problem& p, const Sequence& s, i64 head_kv, i64 index) {
  const i64 m = tile_m(p), blocks = ceil_div<i64>(s.seqlen_q, m), chunk = index / blocks, block = index % blocks;
  const i64 group = group_size(p), heads = heads_per_tile(p);
  QueryTile t;
  t.first_row = block * m;
  t.positions = min_of<i64>(m, s.seqlen_q - t.first_row);
  t.head = head_kv * group + chunk * heads;
  t.heads = min_of(heads, group - chunk * heads);
  return t;
}

inline Interval positions_of(const Sequence& s, const QueryTile& t) {
  const i32 begin = s.mask.query_offset + static_cast<i32>(t.first_row);
  return {begin, begin + static_cast<i32>(t.positions)};
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
