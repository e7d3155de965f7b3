// visible() of a sequence, with intervals and block lists, against tables written out pair by pair; and where keys lie.
#include "core/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/mask_brute_force.h"

namespace iso {
namespace {

constexpr i64 kHeads = 2;

i32 up_to(i32 limit) { return *rc::gen::inRange<i32>(0, limit + 1); }

// What intervals and lists say, as bits and kinds per pair: [head][row][key], [head][m_block][n_block].
struct Tables {
  Sequence sequence;
  std::vector<i32> intervals;
  std::vector<bool> in_interval;
  std::vector<BlockKind> kinds;
  std::vector<i64> begin;
  std::vector<BlockEntry> entries;
  std::vector<i32> upper, lower;
  i32 m_blocks = 0, n_blocks = 0;

  std::size_t pair(i64 head, i32 i, i32 j) const {
    return static_cast<std::size_t>((head * sequence.seqlen_q + i) * sequence.seqlen_kv + j);
  }
  BlockKind& kind(i64 head, i32 m, i32 n) { return kinds[(head * m_blocks + m) * n_blocks + n]; }
};

void draw_intervals(Tables& t) {
  Sequence& s = t.sequence;
  const i32 count = 1 + up_to(2);
  t.intervals.reserve(1);  // data() is not null without rows either: "given"
  t.in_interval.assign(kHeads * s.seqlen_q * s.seqlen_kv, false);
  for (i64 head = 0; head < kHeads; ++head) {
    for (i32 i = 0; i < s.seqlen_q; ++i) {
      std::vector<i32> at;
      for (i32 n = 0; n < 2 * count; ++n) at.push_back(up_to(s.seqlen_kv));
      std::sort(at.begin(), at.end());
      for (i32 n = 0; n < count; ++n)
        for (i32 j = at[2 * n]; j < at[2 * n + 1]; ++j) t.in_interval[t.pair(head, i, j)] = true;
      t.intervals.insert(t.intervals.end(), at.begin(), at.end());
    }
  }
  s.intervals = {t.intervals.data(), static_cast<i64>(s.seqlen_q) * 2 * count, 2 * count, count};
}

void draw_blocks(Tables& t, bool bounds) {
  Sequence& s = t.sequence;
  BlockLists& b = s.blocks;
  b.block_m = 64;
  b.block_n = bounds ? 64 : 64 * (1 + up_to(1));
  t.m_blocks = ceil_div(s.seqlen_q, b.block_m);
  t.n_blocks = ceil_div(s.seqlen_kv, b.block_n);
  t.kinds.assign(kHeads * t.m_blocks * t.n_blocks, BlockKind::none);
  for (i64 head = 0; head < kHeads; ++head) {
    t.begin.push_back(static_cast<i64>(t.entries.size()));
    for (i32 m = 0; m < t.m_blocks; ++m) {
      for (i32 n = 0; n < t.n_blocks; ++n) {
        t.kind(head, m, n) = static_cast<BlockKind>(up_to(3));
        if (t.kind(head, m, n) != BlockKind::none) t.entries.push_back({n, t.kind(head, m, n)});
      }
      t.begin.push_back(static_cast<i64>(t.entries.size()));
    }
  }
  b.begin = t.begin.data();
  b.entries = t.entries.data();
  b.stride_head = t.m_blocks + 1;
  if (!bounds) return;
  b.valid_stride_head = std::max(t.m_blocks, t.n_blocks);
  for (i64 n = 0; n < kHeads * b.valid_stride_head; ++n) {
    t.upper.push_back(up_to(64));
    t.lower.push_back(up_to(64));
  }
  b.valid_upper = t.upper.data();
  b.valid_lower = t.lower.data();
}

// The definition in words, from the tables.
bool expected(Tables& t, bool intervals, bool blocks, bool bounds, i64 head, i32 i, i32 j) {
  const Sequence& s = t.sequence;
  const i32 p = i + s.mask.query_offset;
  if (blocks) {
    const BlockKind kind = t.kind(head, i / s.blocks.block_m, j / s.blocks.block_n);
    if (kind == BlockKind::none) return false;
    if (kind == BlockKind::full) return true;
    if (kind == BlockKind::diag) return p == j;
    const auto valid = [&](i32 x) {
      const std::size_t block = head * s.blocks.valid_stride_head + x / 64;
      return x % 64 < t.upper[block] || x % 64 >= t.lower[block];
    };
    if (bounds) return valid(i) && valid(j);
  }
  return intervals ? t.in_interval[t.pair(head, i, j)] : visible(s.mask, p, j);
}

TEST(Sequence, VisibleEqualsTheTables) {
  EXPECT_TRUE(rc::check("intervals, lists and masks, in every combination", [] {
    Tables t;
    t.sequence.mask = random_mask(100);
    t.sequence.seqlen_kv = t.sequence.mask.seqlen_kv;
    t.sequence.seqlen_q = up_to(t.sequence.seqlen_kv);
    t.sequence.mask.query_offset = up_to(t.sequence.seqlen_kv - t.sequence.seqlen_q);
    const bool intervals = up_to(1) == 0, blocks = up_to(1) == 0, bounds = blocks && up_to(2) == 0;
    if (intervals) draw_intervals(t);
    if (blocks) draw_blocks(t, bounds);
    RC_ASSERT(mask_only(t.sequence) == (!intervals && !blocks));
    for (i64 head = 0; head < kHeads; ++head) {
      for (i32 i = 0; i < t.sequence.seqlen_q; ++i) {
        RC_ASSERT(!visible(t.sequence, head, i, -1));
        RC_ASSERT(!visible(t.sequence, head, i, t.sequence.seqlen_kv));
        for (i32 j = 0; j < t.sequence.seqlen_kv; ++j)
          RC_ASSERT(visible(t.sequence, head, i, j) == expected(t, intervals, blocks, bounds, head, i, j));
      }
    }
  }));
}

TEST(Sequence, BlockKindFindsEveryEntryAndNoOther) {
  EXPECT_TRUE(rc::check("block_kind == the table", [] {
    Tables t;
    t.sequence.seqlen_q = up_to(300);
    t.sequence.seqlen_kv = up_to(1000);
    draw_blocks(t, false);
    for (i64 head = 0; head < kHeads; ++head) {
      for (i32 m = 0; m < t.m_blocks; ++m) {
        for (i32 n = 0; n < t.n_blocks; ++n) RC_ASSERT(block_kind(t.sequence.blocks, head, m, n) == t.kind(head, m, n));
        RC_ASSERT(block_kind(t.sequence.blocks, head, m, t.n_blocks) == BlockKind::none);
      }
    }
  }));
}

TEST(Sequence, ValidBoundsAreAPrefixAndASuffix) {
  BlockLists b;
  b.block_m = b.block_n = 64;
  constexpr i32 kUpper[] = {0, 0, 10}, kLower[] = {0, 64, 60};  // all valid, none, [0, 10) and [60, 64)
  b.valid_upper = kUpper;
  b.valid_lower = kLower;
  for (i32 x = 0; x < 192; ++x) EXPECT_EQ(valid_by_bounds(b, 0, x), x < 64 || (x >= 128 && x < 138) || x >= 188) << x;
}

TEST(Sequence, RunsOfKeysLieRowAfterRow) {
  EXPECT_TRUE(rc::check("kv_run_end covers the keys, and neighbours in a run are neighbours in memory", [] {
    Sequence s;
    s.seqlen_cached = up_to(60);
    s.seqlen_kv = s.seqlen_cached + up_to(20);
    s.kv_batch = up_to(3);
    s.kv_row_begin = up_to(50);
    s.q_batch = up_to(3);
    s.q_row_begin = up_to(50);
    std::vector<i32> table;
    if (up_to(1) == 0) {
      s.page_size = 1 + up_to(20);
      for (i32 n = 0; n < ceil_div(s.seqlen_cached, s.page_size); ++n) table.push_back(up_to(99));
      s.block_table = table.data();
    }
    for (i32 begin = 0, end; begin < s.seqlen_kv; begin = end) {
      end = kv_run_end(s, begin, s.seqlen_kv);
      RC_ASSERT(end > begin && end <= s.seqlen_kv);
      const KvPlace first = kv_place(s, begin);
      for (i32 j = begin; j < end; ++j) {
        const KvPlace at = kv_place(s, j);
        RC_ASSERT(at.is_new == first.is_new && at.is_new == (j >= s.seqlen_cached));
        RC_ASSERT(at.batch == first.batch && at.row == first.row + (j - begin));
        if (at.is_new)
          RC_ASSERT(at.batch == s.q_batch && at.row == s.q_row_begin + j - s.seqlen_cached);
        else if (table.empty())
          RC_ASSERT(at.batch == s.kv_batch && at.row == s.kv_row_begin + j);
        else
          RC_ASSERT(at.batch == table[j / s.page_size] && at.row == j % s.page_size);
      }
      RC_ASSERT(kv_run_end(s, begin, begin + 1) == begin + 1);
    }
  }));
}

}  // namespace
}  // namespace iso
