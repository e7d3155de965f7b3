// Which tiles are visited, and in what order. Every loop of every backend follows KvWalk, so no two roles of a kernel can
// disagree on the number of steps.
#pragma once

#include "core/mask.h"

namespace iso {
inline namespace ISO_TARGET {

// One key tile of a walk: the positions to load, and whether each row of the query tile sees all of them.
struct KvTile {
  Interval keys;
  TileClass tile_class = TileClass::skip;
};

// The key tiles that a query tile visits in the context and the history, ascending. Tiles lie on the grid of `tile_n` keys
// and are clipped to [0, context_end) and [history_begin, history_end): padding is never loaded, so a NaN there cannot
// reach a product. A row's own candidate group is not part of this walk (see candidate_keys).
class KvWalk {
 public:
  // Of the walk only what lies in `within`, whose ends are multiples of tile_n or beyond the keys.
  ISO_HOST_DEVICE KvWalk(const MaskSpec& mask, Interval queries, i32 tile_n, Interval within = {0, kMaxSeqlen})
      : cover_(tile_cover(mask, queries)), tile_n_(tile_n) {
    regions_.add(intersect(within, {0, mask.context_end}));
    regions_.add(intersect(within, {mask.history_begin, mask.history_end}));
    if (regions_.count > 0) next_ = regions_.at[0].begin;
  }

  // Advances to the next visited tile; false at the end.
  ISO_HOST_DEVICE bool next(KvTile& tile) {
    while (region_ < regions_.count) {
      const Interval region = regions_.at[region_];
      if (next_ >= region.end) {
        if (++region_ < regions_.count) next_ = regions_.at[region_].begin;
        continue;
      }
      const Interval keys{next_, min_of(next_ / tile_n_ * tile_n_ + tile_n_, region.end)};
      next_ = keys.end;
      tile = {keys, classify(cover_, keys)};
      if (tile.tile_class != TileClass::skip) return true;
    }
    return false;
  }

 private:
  TileCover cover_;
  IntervalList<2> regions_;
  i32 tile_n_;
  int region_ = 0;
  i32 next_ = 0;
};

// The candidate keys that rows of `queries` see besides the walk: whole groups, from the first row's to the last row's.
ISO_FN Interval candidate_keys(const MaskSpec& m, Interval queries) {
  const Interval rows = intersect(queries, {m.candidate_begin, m.candidate_end});
  if (is_plain(m) || rows.empty()) return {};
  return {group_begin(m, rows.begin), group_end(m, rows.end - 1)};
}

}  // namespace ISO_TARGET
}  // namespace iso
