// Who sees whom in one query tile, whatever says so (MaskSpec, explicit intervals, block lists): the key tiles to visit, what
// each row (lane) sees of them, and the few keys that a row takes one by one.
//
// Key tiles lie on the grid of kTileN keys (64 where blocks of keys are no multiple of it), and every tile is cut to the keys
// that some row sees. A row's sums are formed tile by tile along that grid, so they do not depend on which rows share its tile.
#pragma once

#include "core/schedule.h"
#include "cpu/level/vector_math.h"
#include "cpu/params.h"
#include "cpu/tiling.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// Hands out pieces of a worker's scratch. With a null base it only counts, so one function gives size and layout.
class Arena {
 public:
  explicit Arena(char* base) : base_(base) {}
  template <class T>
  T* take(i64 count) {
    T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += align_up<i64>(count * static_cast<i64>(sizeof(T)), 64);
    return at;
  }
  i64 used() const { return used_; }

 private:
  char* base_;
  i64 used_ = 0;
};

// Candidate groups of at least this many keys are multiplied as tiles, smaller ones key by key: the rows of a tile have
// different ones, so most of the products would be masked away.
inline constexpr i32 kTiledKeys = 32;

// Likewise for interval n of a row that came as intervals. The first one is often shared by all rows (a short history), unless
// it is tiny.
inline bool taken_one_by_one(int n, Interval keys) { return keys.size() < (n == 0 ? 8 : kTiledKeys); }

// A few key intervals of each row of a tile: three that may be tiles, or three short ones and one of a diag block.
struct RowPieces {
  static constexpr int kMost = 4;
  i32 *begin[kMost], *size[kMost];
  int count = 0;  // pieces that some row has

  explicit RowPieces(Arena& arena) {
    for (int n = 0; n < kMost; ++n) begin[n] = arena.take<i32>(kTileRows), size[n] = arena.take<i32>(kTileRows);
  }
  // No row has anything.
  void clear() {
    for (int n = 0; n < kMost; ++n) __builtin_memset(size[n], 0, kTileRows * sizeof(i32));
    count = 0;
  }
  // Piece n of rows [row, row + rows).
  void set(i64 row, i64 rows, int n, Interval keys) {
    for (i64 r = row; r < row + rows; ++r) begin[n][r] = keys.begin, size[n][r] = keys.size();
    if (!keys.empty()) count = max_of(count, n + 1);
  }
  Interval at(i64 row, int n) const { return {begin[n][row], begin[n][row] + size[n][row]}; }

  // Lanes [row, row + kLanes) that have key j.
  HWY_INLINE auto contain(i64 row, i32 j) const {
    const UintTag du;
    const auto key = hn::Set(kInt, j);
    const auto in = [&](int n) {
      const auto offset = hn::BitCast(du, hn::Sub(key, hn::LoadU(kInt, begin[n] + row)));
      return hn::Lt(offset, hn::BitCast(du, hn::LoadU(kInt, size[n] + row)));
    };
    auto any = in(0);
    for (int n = 1; n < count; ++n) any = hn::Or(any, in(n));
    return hn::RebindMask(kFloat, any);
  }
};

// The keys of a tile that its rows see: from the first to the last, and whether every row sees all of these.
struct TileSpan {
  i32 begin, end, last_begin, first_end;
  i64 pieces;

  void clear() { *this = {0x7fffffff, 0, 0, 0x7fffffff, 0}; }
  void add(Interval x, i64 rows) {
    begin = min_of(begin, x.begin), last_begin = max_of(last_begin, x.begin);
    end = max_of(end, x.end), first_end = min_of(first_end, x.end);
    pieces += rows;
  }
  // Two pieces of one row leave a gap, so one of them begins late or ends early.
  KvTile tile(i64 rows) const {
    const bool full = pieces == rows && last_begin == begin && first_end == end;
    return {{begin, end}, pieces == 0 ? TileClass::skip : full ? TileClass::full : TileClass::partial};
  }
};

class QueryMask {
 public:
  // Explicit intervals need the spans of a sequence's tiles.
  QueryMask(bool intervals, i64 max_seqlen_kv, Arena& arena)
      : seen_(arena), own_(arena), spans_(arena.take<TileSpan>(intervals ? ceil_div<i64>(max_seqlen_kv, kTileN) : 0)) {}

  // Turns to a query tile, and of the walk to those tiles that begin in `within`, which lies on the grid.
  void start(const Sequence& s, const QueryTile& tile, Interval within) {
    sequence_ = &s;
    tile_ = tile;
    positions_ = positions_of(s, tile);
    rows_ = tile.positions * tile.heads;
    within_ = within;
    seen_.clear();
    own_.clear();
    if (given(s.blocks)) {
      start_blocks();
    } else if (s.intervals.data != nullptr) {
      start_intervals();
    } else {
      start_spec();
    }
  }

  // The next key tile of the walk; false at the end. contain() of `seen` is then about it.
  bool next(KvTile& tile) {
    if (given(sequence_->blocks)) return next_block_tile(tile);
    if (sequence_->intervals.data == nullptr) return walk_.next(tile);
    for (; index_ < end_index_;) {
      tile = spans_[index_++].tile(rows_);
      if (tile.tile_class != TileClass::skip) return true;
    }
    return false;
  }

  // Lanes [row, row + kLanes) that see key j of the current tile.
  HWY_INLINE auto sees(i64 row, i32 j) const { return seen_.contain(row, j); }

  // The keys that rows take one by one besides the walk: own(row, n) for n < own_count().
  int own_count() const { return own_.count; }
  Interval own(i64 row, int n) const { return own_.at(row, n); }

  // Candidate groups that are multiplied as tiles: from here on, sees() is about these.
  bool has_group_tiles() const { return group_tiles_; }
  void turn_to_groups() {
    seen_.clear();
    for_each_row(true, [&](i64 row, i64 rows, i32 i, i64) { seen_.set(row, rows, 0, group_of(position(i))); });
  }

  // Does a row see no key at all?
  bool blind(i64 row) const {
    const i32 i = static_cast<i32>(tile_.first_row + row / tile_.heads);
    const i64 head = tile_.head + row % tile_.heads;
    const Sequence& s = *sequence_;
    if (!given(s.blocks)) {
      return s.intervals.data == nullptr ? row_intervals(s.mask, position(i)).count == 0
                                         : explicit_intervals(s, head, i).count == 0;
    }
    const BlockRow lists = block_row(s.blocks, head, i / s.blocks.block_m);
    for (const BlockEntry* entry = lists.first; entry < lists.last; ++entry)
      if (keys_in_block(*entry, head, i, false).count > 0) return false;
    return true;
  }

 private:
  // Rows of the tile with one list of blocks: those of one query block and head.
  struct Cursor {
    const BlockEntry *next, *last;
  };

  // Calls body(first tile row, tile rows, sequence row, query head): once a position if the heads see the same, else once a
  // row.
  template <class Body>
  void for_each_row(bool heads_alike, const Body& body) const {
    const i64 step = heads_alike ? tile_.heads : 1;
    i64 row = 0;
    for (i64 i = 0; i < tile_.positions; ++i)
      for (i64 h = 0; h < tile_.heads; h += step, row += step)
        body(row, step, static_cast<i32>(tile_.first_row + i), tile_.head + h);
  }
  i32 position(i32 i) const { return i + sequence_->mask.query_offset; }

  Interval group_of(i32 p) const {
    const MaskSpec& m = sequence_->mask;
    if (is_plain(m) || role_at(m, p) != Role::candidate) return {};
    return {group_begin(m, p), group_end(m, p)};
  }

  void start_spec() {
    const MaskSpec& m = sequence_->mask;
    walk_ = KvWalk(m, positions_, kTileN, within_);
    const bool tiled = m.candidate_group_size >= kTiledKeys;
    group_tiles_ = tiled && !candidate_keys(m, positions_).empty();
    for_each_row(true, [&](i64 row, i64 rows, i32 i, i64) {
      const i32 p = position(i);
      const Role role = role_at(m, p);
      if (role == Role::padding) return;
      seen_.set(row, rows, 0, {0, m.context_end});
      seen_.set(row, rows, 1, role == Role::history ? history_seen(m, p) : Interval{m.history_begin, m.history_end});
      if (!tiled) own_.set(row, rows, 0, group_of(p));
    });
  }

  void start_intervals() {
    group_tiles_ = false;
    index_ = within_.begin / kTileN;
    end_index_ = ceil_div(min_of(within_.end, sequence_->seqlen_kv), kTileN);
    for (i32 t = index_; t < end_index_; ++t) spans_[t].clear();
    for_each_row(sequence_->intervals.stride_head == 0, [&](i64 row, i64 rows, i32 i, i64 head) {
      const RowIntervals all = explicit_intervals(*sequence_, head, i);
      int long_ones = 0, short_ones = 0;
      for (int n = 0; n < all.count; ++n) {
        const Interval x = all.at[n];
        if (taken_one_by_one(n, x)) {
          own_.set(row, rows, short_ones++, x);
          continue;
        }
        seen_.set(row, rows, long_ones++, x);
        for (i32 t = max_of(x.begin / kTileN, index_); t < end_index_ && t * kTileN < x.end; ++t)
          spans_[t].add(intersect(x, {t * kTileN, (t + 1) * kTileN}), rows);
      }
    });
  }

  void start_blocks() {
    const BlockLists& b = sequence_->blocks;
    group_tiles_ = false;
    block_tile_ = b.block_n % kTileN == 0 ? kTileN : 64;
    pending_ = {0, 0};
    next_block_ = 0;
    heads_alike_ = b.stride_head == 0 && b.valid_stride_head == 0 && sequence_->intervals.stride_head == 0;
    first_block_row_ = static_cast<i32>(tile_.first_row / b.block_m);
    const i32 end = static_cast<i32>(ceil_div<i64>(tile_.first_row + tile_.positions, b.block_m));
    list_heads_ = b.stride_head == 0 ? 1 : tile_.heads;
    num_cursors_ = 0;
    for (i32 m = first_block_row_; m < end; ++m)
      for (i64 h = 0; h < list_heads_; ++h) {
        const BlockRow lists = block_row(b, tile_.head + h, m);
        Cursor& cursor = cursors_[num_cursors_++] = {lists.first, lists.last};
        while (cursor.next < cursor.last && i64{cursor.next->block + 1} * b.block_n <= within_.begin) ++cursor.next;
      }
    for_each_row(heads_alike_, [&](i64 row, i64 rows, i32 i, i64 head) {
      int count = 0;
      const auto own = [&](Interval keys) {
        if (!keys.empty()) own_.set(row, rows, count++, keys);
      };
      const i32 m = i / b.block_m, p = position(i);
      if (b.valid_upper == nullptr) {
        const RowIntervals all = base_intervals(head, i);
        for (int n = 0; n < all.count; ++n)
          if (taken_one_by_one(n, all.at[n])) own(in_mask_blocks(all.at[n], head, m));
      }
      if (p >= 0 && p < sequence_->seqlen_kv && block_kind(b, head, m, p / b.block_n) == BlockKind::diag) own({p, p + 1});
    });
  }

  // What the mask kind refines by, without bounds.
  RowIntervals base_intervals(i64 head, i32 i) const {
    return sequence_->intervals.data != nullptr ? explicit_intervals(*sequence_, head, i)
                                                : row_intervals(sequence_->mask, position(i));
  }

  // The part of a short interval, which meets at most two blocks, that lies in blocks of the mask kind.
  Interval in_mask_blocks(Interval x, i64 head, i32 m_block) const {
    const BlockLists& b = sequence_->blocks;
    const i32 first = x.begin / b.block_n, last = (x.end - 1) / b.block_n;
    const bool head_part = block_kind(b, head, m_block, first) == BlockKind::mask;
    if (first == last) return head_part ? x : Interval{};
    const bool tail_part = block_kind(b, head, m_block, last) == BlockKind::mask;
    return {head_part ? x.begin : last * b.block_n, tail_part ? x.end : last * b.block_n};
  }

  bool next_block_tile(KvTile& tile) {
    const i32 seqlen = min_of(sequence_->seqlen_kv, within_.end);
    for (;;) {
      if (pending_.empty()) {
        // The first block that some row has not visited yet.
        for (i64 c = 0; c < num_cursors_; ++c)
          while (cursors_[c].next < cursors_[c].last && cursors_[c].next->block < next_block_) ++cursors_[c].next;
        i32 block = 0x7fffffff;
        for (i64 c = 0; c < num_cursors_; ++c)
          if (cursors_[c].next < cursors_[c].last) block = min_of(block, cursors_[c].next->block);
        const i64 begin = i64{block} * sequence_->blocks.block_n;
        if (block == 0x7fffffff || begin >= seqlen) return false;
        next_block_ = block + 1;
        block_ = block;
        pending_ =
            intersect({static_cast<i32>(begin), static_cast<i32>(min_of<i64>(begin + sequence_->blocks.block_n, seqlen))},
                      {within_.begin, within_.end});
      }
      const Interval keys = intersect(pending_, {pending_.begin, pending_.begin / block_tile_ * block_tile_ + block_tile_});
      pending_.begin = keys.end;
      if (keys.empty()) continue;
      tile = block_tile(keys);
      if (tile.tile_class != TileClass::skip) return true;
    }
  }

  // What rows see of `keys`, a part of block_.
  KvTile block_tile(Interval keys) {
    TileSpan span;
    span.clear();
    seen_.clear();
    for_each_row(heads_alike_, [&](i64 row, i64 rows, i32 i, i64 head) {
      const i64 m = i / sequence_->blocks.block_m - first_block_row_;
      const Cursor& cursor = cursors_[m * list_heads_ + (list_heads_ == 1 ? 0 : head - tile_.head)];
      if (cursor.next >= cursor.last || cursor.next->block != block_ || cursor.next->kind == BlockKind::diag) return;
      const RowIntervals all = keys_in_block(*cursor.next, head, i, true);
      int count = 0;
      for (int n = 0; n < all.count; ++n) {
        const Interval x = intersect(all.at[n], keys);
        if (x.empty()) continue;
        seen_.set(row, rows, count++, x);
        span.add(x, rows);
      }
    });
    return span.tile(rows_);
  }

  // Keys of a block that row i sees; if only `tiled`, without those it takes one by one.
  RowIntervals keys_in_block(const BlockEntry& entry, i64 head, i32 i, bool tiled) const {
    const BlockLists& b = sequence_->blocks;
    const i64 first = i64{entry.block} * b.block_n;
    const Interval block{static_cast<i32>(first), static_cast<i32>(min_of<i64>(first + b.block_n, sequence_->seqlen_kv))};
    RowIntervals out;
    switch (entry.kind) {
      case BlockKind::none: break;
      case BlockKind::full: out.add(block); break;
      case BlockKind::diag: out.add(intersect(block, {position(i), position(i) + 1})); break;
      case BlockKind::mask: {
        if (b.valid_upper != nullptr) {
          if (!valid_by_bounds(b, head, i)) break;
          const i64 bound = head * b.valid_stride_head + entry.block;
          out.add(intersect(block, {block.begin, block.begin + b.valid_upper[bound]}));
          out.add(intersect(block, {block.begin + b.valid_lower[bound], block.end}));
          break;
        }
        const RowIntervals all = base_intervals(head, i);
        for (int n = 0; n < all.count; ++n)
          if (!tiled || !taken_one_by_one(n, all.at[n])) out.add(intersect(block, all.at[n]));
      }
    }
    return out;
  }

  RowPieces seen_, own_;
  TileSpan* spans_;
  const Sequence* sequence_ = nullptr;
  QueryTile tile_;
  Interval positions_, within_;
  i64 rows_ = 0;
  bool group_tiles_ = false;
  KvWalk walk_{MaskSpec{}, Interval{}, kTileN, Interval{}};
  // Explicit intervals: tiles [index_, end_index_) are still to visit.
  i32 index_ = 0, end_index_ = 0;
  // Block lists: the current block and what is left of it, and the lists of the tile's query blocks and heads.
  i32 block_tile_ = kTileN, block_ = 0, next_block_ = 0, first_block_row_ = 0;
  Interval pending_;
  i64 num_cursors_ = 0, list_heads_ = 1;
  bool heads_alike_ = false;
  Cursor cursors_[kTileRows];
};

}  // namespace ISO_TARGET
}  // namespace iso::cpu
