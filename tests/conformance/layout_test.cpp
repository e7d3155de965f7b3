// The random arrays of cases keep the rules of the C ABI, and the oracle's views say what the arrays say.
#include "conformance/layout.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

namespace iso::conformance {
namespace {

Layout layout(const char* text) { return layout_of(parse_case(text).value()); }

// Calls visit(sequence, head, m_block, n_block, kind) for every entry of the lists of one form, dense or packed.
template <class Visit>
void for_each_entry(const Case& c, const Layout& l, bool backward, Visit&& visit) {
  const i64 block = backward ? c.blocks.block_n : c.blocks.block_m;
  for (int kind = 0; kind < 3; ++kind) {
    const ListArrays& list = backward ? l.arrays.backward[kind] : l.arrays.forward[kind];
    if (!list.counts.given()) continue;
    const i64 width = list.indices.shape.back(), total = list.counts.shape.back();
    const i64 heads = list.counts.shape[list.counts.shape.size() - 2];
    i64 first = 0;
    for (i64 b = 0; b < c.batch; ++b) {
      const i64 blocks = ceil_div<i64>(backward ? l.sequences[b].slot_kv : l.sequences[b].slot_q, block);
      for (i64 head = 0; head < c.num_heads_q; ++head) {
        const i64 h = heads == 1 ? 0 : head;
        const i64 slot = c.packed || list.counts.shape[0] == 1 ? 0 : b;
        for (i64 n = 0; n < blocks; ++n) {
          const i64 row = c.packed ? h * total + first + n : (slot * heads + h) * total + n;
          const i64 count = list.counts.values[row];
          ASSERT_LE(count, width);
          for (i64 x = 0; x < count; ++x) {
            const i64 other = list.indices.values[row * width + x];
            visit(b, head, backward ? other : n, backward ? n : other, static_cast<BlockKind>(kind + 1));
          }
        }
      }
      first += blocks;
    }
  }
}

TEST(Layout, ListsOfBothFormsAreTheOraclesLists) {
  for (const char* text : {"bwd f32 dense b=2 q=300 k=400 h=4/2 d=8 blocks=64/128:3:t",
                           "bwd f32 dense b=3 q=300 k=300 h=4/2 d=8 blocks=64/64:4:bht",
                           "bwd f32 packed q=200,0,90 k=200,70,300 h=2 d=8 blocks=64/64:5:t",
                           "bwd f32 packed q=200,0,90 k=200,70,300 h=2 d=8 blocks=128/64:6:ht"}) {
    const Case c = parse_case(text).value();
    const Layout l = layout_of(c);
    using Place = std::array<i64, 4>;
    std::map<Place, BlockKind> forms[2];
    for (const bool backward : {false, true})
      for_each_entry(c, l, backward, [&](i64 b, i64 head, i64 m, i64 n, BlockKind kind) {
        EXPECT_LT(n * c.blocks.block_n, l.sequences[b].slot_kv) << text;
        EXPECT_TRUE(forms[backward].emplace(Place{b, head, m, n}, kind).second) << text << ": a block in two lists";
      });
    EXPECT_EQ(forms[0], forms[1]) << text;
    EXPECT_FALSE(forms[0].empty()) << text;
    for (i64 b = 0; b < c.batch; ++b)
      for (i64 head = 0; head < c.num_heads_q; ++head)
        for (i64 m = 0; m * c.blocks.block_m < l.sequences[b].slot_q; ++m)
          for (i64 n = 0; n * c.blocks.block_n < l.sequences[b].slot_kv; ++n) {
            const auto found = forms[0].find(Place{b, head, m, n});
            EXPECT_EQ(block_kind(l.sequences[b].blocks, head, static_cast<i32>(m), static_cast<i32>(n)),
                      found == forms[0].end() ? BlockKind::none : found->second)
                << text;
          }
  }
}

TEST(Layout, IntervalsAreInOrderAndWithinTheKeys) {
  for (const char* text : {"bwd f32 dense b=3 q=90 k=90 usedq=90,40,30 usedk=90,50,17 h=2 d=8 intervals=3:1:b",
                           "bwd f32 packed q=80,0,140 k=100,7,140 h=2 d=8 intervals=2:2"}) {
    const Layout l = layout(text);
    i64 seen = 0, partly = 0;
    for (const Sequence& s : l.sequences) {
      for (i64 head = 0; head < 2; ++head) {
        for (i32 i = 0; i < s.seqlen_q; ++i) {
          const i32* at = s.intervals.data + head * s.intervals.stride_head + i * s.intervals.stride_row;
          for (i32 n = 0; n < 2 * s.intervals.count; ++n) {
            EXPECT_LE(n == 0 ? 0 : at[n - 1], at[n]) << text;
            EXPECT_LE(at[n], s.seqlen_kv) << text;
          }
          const i64 keys = explicit_intervals(s, head, i).size();
          seen += keys > 0 ? 1 : 0;
          partly += keys > 0 && keys < s.seqlen_kv ? 1 : 0;
        }
      }
    }
    EXPECT_GT(partly, 20) << text;
    EXPECT_GT(seen, partly) << text << ": no row that sees every key";
  }
}

TEST(Layout, NoPageServesTwoSequences) {
  const Layout l = layout("fwd f32 packed q=5,5,5 k=70,0,33 kv=paged:16 h=1 d=8");
  std::map<i32, int> users;
  for (const Sequence& s : l.sequences)
    for (i32 page = 0; page * 16 < s.seqlen_cached; ++page) ++users[s.block_table[page]];
  EXPECT_EQ(users.size(), 8u);
  for (const auto& [page, count] : users) {
    EXPECT_EQ(count, 1) << "page " << page;
    EXPECT_LT(page, l.arrays.num_pages);
  }
}

TEST(Layout, NewKeysFollowTheCache) {
  const Layout l = layout("fwd f32 packed q=4,5 k=20 usedk=20,7 kv=dense new h=1 d=8 context=2 candidates=3");
  EXPECT_EQ(l.sequences[1].seqlen_cached, 7);
  EXPECT_EQ(l.sequences[1].seqlen_kv, 12);
  EXPECT_EQ(l.sequences[1].mask.query_offset, 7);
  EXPECT_EQ(l.sequences[1].mask.candidate_begin, 9);
  EXPECT_TRUE(kv_place(l.sequences[1], 7).is_new);
  EXPECT_EQ(kv_place(l.sequences[1], 8).row, 5);  // the second row of k_new's second sequence
}

}  // namespace
}  // namespace iso::conformance
