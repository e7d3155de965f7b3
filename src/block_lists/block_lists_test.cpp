// The builders against the definition: what the lists show is what the mask shows, row by row and key by key; and against
// arrays worked out by hand.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/mask_brute_force.h"
#include "isoflash/isoflash.hpp"
#include "validate/validate.h"

namespace iso {
namespace {

using isoflash::BlockList;
using isoflash::BlockListsHandle;
using isoflash::BlockSparsity;
using isoflash::Problem;
using Ints = std::vector<i32>;

Ints values(const isoflash_tensor& t) {
  i64 size = t.rank == 0 ? 0 : 1;
  for (i32 axis = 0; axis < t.rank; ++axis) size *= t.shape[axis];
  const i32* data = static_cast<const i32*>(t.data);
  return Ints(data, data + size);
}

std::vector<i64> shape(const isoflash_tensor& t) { return {t.shape, t.shape + t.rank}; }

// Row by row, what a list holds: "0 1 | 2 | - ".
std::string text(const BlockList& list) {
  if (list.counts.rank == 0) return "not given";
  const Ints counts = values(list.counts), indices = values(list.indices);
  const i64 width = list.indices.shape[list.indices.rank - 1];
  std::string out;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    if (m > 0) out += " | ";
    if (counts[m] == 0) out += "-";
    for (i32 n = 0; n < counts[m]; ++n) out += (n > 0 ? " " : "") + std::to_string(indices[m * width + n]);
  }
  return out;
}

BlockSparsity built(const isoflash::Result<BlockListsHandle>& lists) {
  EXPECT_TRUE(lists) << lists.error().message();
  return lists ? lists->blocks() : BlockSparsity{};
}

// A problem without data: dense unless cu_seqlens are given.
Problem dense(i64 batch, i64 heads, i64 seqlen_q, i64 seqlen_kv) {
  const float* none = nullptr;
  return {.q = {none, {batch, seqlen_q, heads, 8}},
          .k = {none, {batch, seqlen_kv, 1, 8}},
          .v = {none, {batch, seqlen_kv, 1, 8}},
          .out = {none, {batch, seqlen_q, heads, 8}}};
}
Problem packed(i64 heads, const Ints& cu_q, const Ints& cu_kv) {
  const float* none = nullptr;
  return {.q = {none, {cu_q.back(), heads, 8}},
          .k = {none, {cu_kv.back(), 1, 8}},
          .v = {none, {cu_kv.back(), 1, 8}},
          .out = {none, {cu_q.back(), heads, 8}},
          .cu_seqlens_q = cu_q,
          .cu_seqlens_kv = cu_kv};
}

Validated validated(const Problem& problem) {
  auto valid = validate_problem(isoflash::c_problem(problem));
  EXPECT_TRUE(valid) << valid.error().message();
  return valid ? std::move(*valid) : Validated{};
}

// --- from a problem ----------------------------------------------------------------------------------------------------

// The problem shows the same with its lists as without, and each block is of the kind that says most.
void expect_same_visibility(Problem problem, i64 block_m, i64 block_n) {
  const auto lists = BlockListsHandle::from_problem(problem, block_m, block_n);
  ASSERT_TRUE(lists) << lists.error().message();
  const Validated plain = validated(problem);
  problem.blocks = lists->blocks();
  const Validated listed = validated(problem);  // which also holds backward against forward
  for (std::size_t b = 0; b < plain.sequences.size(); ++b) {
    const Sequence &x = plain.sequences[b], &y = listed.sequences[b];
    for (i64 head = 0; head < plain.problem.num_heads_q; ++head) {
      for (i32 m = 0; m * block_m < x.seqlen_q; ++m) {
        for (i32 n = 0; n * block_n < x.seqlen_kv; ++n) {
          i64 seen = 0, all = 0, own_seen = 0, own = 0;
          for (i64 i = m * block_m; i < std::min<i64>((m + 1) * block_m, x.seqlen_q); ++i) {
            for (i64 j = n * block_n; j < std::min<i64>((n + 1) * block_n, x.seqlen_kv); ++j) {
              const bool sees = visible(x, head, static_cast<i32>(i), static_cast<i32>(j));
              ASSERT_EQ(visible(y, head, static_cast<i32>(i), static_cast<i32>(j)), sees)
                  << "sequence " << b << " head " << head << " row " << i << " key " << j;
              const bool is_own = i + x.mask.query_offset == j;
              all += 1, seen += sees, own += is_own, own_seen += is_own && sees;
            }
          }
          const BlockKind expected = seen == 0                             ? BlockKind::none
                                     : seen == all                         ? BlockKind::full
                                     : seen == own_seen && own == own_seen ? BlockKind::diag
                                                                           : BlockKind::mask;
          ASSERT_EQ(block_kind(y.blocks, head, m, n), expected)
              << "sequence " << b << " head " << head << " query block " << m << " key block " << n;
        }
      }
    }
  }
}

i64 random_block() { return 64 * *rc::gen::inRange<i64>(1, 4); }

RC_GTEST_PROP(ListsFromProblem, ShowWhatTheMaskShows, ()) {
  const MaskSpec m = random_mask(*rc::gen::inRange(1, 400));
  const bool structured = !is_plain(m);
  const i32 seqlen_q = *rc::gen::inRange(1, m.seqlen_kv + 2);
  RC_PRE(m.seqlen_kv > 0 && (!structured || seqlen_q <= m.seqlen_kv));
  Problem p = dense(2, 2, seqlen_q, m.seqlen_kv);
  const Ints begins{m.history_begin, m.context_end}, ends{m.history_end, m.history_end_slot};  // two sequences
  p.mask.num_context = m.context_end;
  p.mask.history_len = m.history_end_slot - m.context_end;
  p.mask.candidate_begin = m.candidate_begin;
  p.mask.num_candidates = m.candidate_end - m.candidate_begin;
  p.mask.candidate_group_size = m.candidate_group_size;
  p.mask.history_begin = begins;
  p.mask.history_end = ends;
  p.mask.history_kind = static_cast<isoflash::HistoryKind>(m.history_kind);
  if (m.history_kind == HistoryKind::window) {
    p.mask.window_left = m.window_left == kUnlimited ? isoflash::kUnlimited : m.window_left;
    p.mask.window_right = m.window_right == kUnlimited ? isoflash::kUnlimited : m.window_right;
  }
  expect_same_visibility(p, random_block(), random_block());
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(ListsFromProblem, ShowWhatPackedSequencesShow, ()) {
  Ints cu_q{0}, cu_kv{0}, candidates, used_q;
  for (int b = *rc::gen::inRange(0, 4); b > 0; --b) {
    const i32 rows = *rc::gen::inRange(0, 200), keys = rows + *rc::gen::inRange(0, 200);
    cu_q.push_back(cu_q.back() + rows);
    cu_kv.push_back(cu_kv.back() + keys);
    candidates.push_back(*rc::gen::inRange(0, keys + 1));
    used_q.push_back(*rc::gen::inRange(0, rows + 1));
  }
  Problem p = packed(2, cu_q, cu_kv);
  p.mask.num_candidates = candidates;
  p.seqused_q = used_q;
  if (*rc::gen::arbitrary<bool>()) p.mask.history_kind = isoflash::HistoryKind::causal;
  expect_same_visibility(p, random_block(), random_block());
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(ListsFromProblem, ShowWhatRowIntervalsShow, ()) {
  const i64 batch = *rc::gen::inRange(1, 3), heads = *rc::gen::inRange(1, 3), rows = *rc::gen::inRange(1, 260);
  const i32 keys = *rc::gen::inRange(1, 260), pairs = *rc::gen::inRange(1, 4);
  const i64 own_batch = *rc::gen::arbitrary<bool>() ? batch : 1, own_heads = *rc::gen::arbitrary<bool>() ? heads : 1;
  Ints intervals;
  for (i64 row = 0; row < own_batch * own_heads * rows; ++row) {
    i32 at = 0;
    for (i32 n = 0; n < pairs; ++n) {
      const Interval part = random_part({at, keys});
      intervals.push_back(part.begin);
      intervals.push_back(at = part.end);
    }
  }
  Problem p = dense(batch, heads, rows, keys);
  p.row_intervals = {intervals.data(), {own_batch, own_heads, rows, 2 * pairs}};
  expect_same_visibility(p, random_block(), random_block());
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(ListsFromProblem, CandidatesAloneAreDiagonal) {
  Problem p = dense(3, 4, 512, 512);
  p.mask.num_candidates = 256;
  const auto lists = BlockListsHandle::from_problem(p, 128, 128);
  const BlockSparsity b = built(lists);
  EXPECT_EQ(text(b.forward.full), "0 1 | 0 1 | 0 1 | 0 1");
  EXPECT_EQ(text(b.forward.diag), "- | - | 2 | 3");
  EXPECT_EQ(text(b.forward.mask), "not given");
  EXPECT_EQ(text(b.backward.full), "0 1 2 3 | 0 1 2 3 | - | -");
  EXPECT_EQ(text(b.backward.diag), "- | - | 2 | 3");
  EXPECT_EQ(shape(b.forward.full.counts), (std::vector<i64>{1, 1, 4})) << "all sequences and heads are alike";
  EXPECT_EQ(shape(b.forward.full.indices), (std::vector<i64>{1, 1, 4, 2}));
  EXPECT_EQ(values(b.forward.full.indices), (Ints{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(b.block_m, 128);
  EXPECT_EQ(b.block_n, 128);
}

TEST(ListsFromProblem, SequencesThatDifferAreNotShared) {
  Problem p = dense(2, 4, 128, 128);
  const Ints used{128, 0};
  p.seqused_kv = used;
  const auto lists = BlockListsHandle::from_problem(p, 128, 64);
  const BlockSparsity b = built(lists);
  EXPECT_EQ(shape(b.forward.full.counts), (std::vector<i64>{2, 1, 1}));
  EXPECT_EQ(text(b.forward.full), "0 1 | -");
  EXPECT_EQ(text(b.backward.full), "0 | 0 | - | -");
}

TEST(ListsFromProblem, PackedBlocksFollowEachOther) {
  const Ints cu{0, 65, 65, 130};
  Problem p = packed(2, cu, cu);
  p.mask = isoflash::Mask::causal();
  const auto lists = BlockListsHandle::from_problem(p, 64, 64);
  const BlockSparsity b = built(lists);
  EXPECT_EQ(shape(b.forward.mask.counts), (std::vector<i64>{1, 4}));
  EXPECT_EQ(text(b.forward.mask), "0 | - | 0 | -");
  EXPECT_EQ(text(b.forward.full), "- | 0 1 | - | 0 1");
  EXPECT_EQ(text(b.backward.full), "1 | 1 | 1 | 1");
}

TEST(ListsFromProblem, NothingVisible) {
  Problem p = dense(1, 1, 64, 64);
  const Ints none(64 * 2);
  p.row_intervals = {none.data(), {1, 1, 64, 2}};
  const auto lists = BlockListsHandle::from_problem(p, 64, 64);
  EXPECT_EQ(text(built(lists).forward.mask), "-") << "lists that are given, and empty";
  expect_same_visibility(p, 64, 64);
}

// Paged and new keys: forward lists alone, since there is no backward.
TEST(ListsFromProblem, KeysOfACache) {
  const float* none = nullptr;
  const Ints table{4, 0, 1, 3}, cached{200, 77};
  Problem p{.q = {none, {2, 70, 2, 8}},
            .k = {none, {5, 128, 1, 8}},
            .v = {none, {5, 128, 1, 8}},
            .out = {none, {2, 70, 2, 8}},
            .seqused_kv = cached,
            .mask = {.num_candidates = 70},
            .block_table = {table.data(), {2, 2}},
            .k_new = {none, {2, 70, 1, 8}},
            .v_new = {none, {2, 70, 1, 8}}};
  expect_same_visibility(p, 64, 64);
  const auto lists = BlockListsHandle::from_problem(p, 64, 64);
  const BlockSparsity b = built(lists);
  EXPECT_EQ(text(b.forward.full), "0 1 2 | 0 1 2 | 0 | 0");
  EXPECT_EQ(text(b.forward.mask), "3 | 3 | 1 | 1") << "the end of the history and the first candidates";
  EXPECT_EQ(text(b.forward.diag), "4 | 4 | 2 | 2");
  EXPECT_EQ(text(b.backward.full), "not given");
}

// Rows times keys would be 2^50 steps.
TEST(ListsFromProblem, CostIsNotQuadratic) {
  Problem p = dense(1, 1, i64{1} << 25, i64{1} << 25);
  p.mask = isoflash::Mask::window(1000, 0);
  const auto lists = BlockListsHandle::from_problem(p, 4096, 4096);
  const BlockSparsity b = built(lists);
  EXPECT_EQ(shape(b.forward.mask.counts), (std::vector<i64>{1, 1, 1 << 13}));
  EXPECT_EQ(b.forward.mask.indices.shape[3], 2);
}

// --- from sessions -----------------------------------------------------------------------------------------------------

BlockListsHandle::Sessions sessions(const Ints& cu, const Ints& slots, i64 seqlen, i64 rows = 1) {
  const i64 users = static_cast<i64>(slots.size()) / rows;
  return {.cu_seqlens = {cu.data(), {rows, users + 1}}, .candidate_slot = {slots.data(), {rows, users}}, .seqlen = seqlen};
}

// A dense history of 2 blocks and 2 blocks of candidates, one user a row.
TEST(ListsFromSessions, DenseHistoryAndCandidates) {
  const Ints cu{0, 512}, slots{256};
  const auto lists = BlockListsHandle::from_sessions(sessions(cu, slots, 512));
  const BlockSparsity b = built(lists);
  EXPECT_EQ(values(b.forward.full.counts), (Ints{2, 2, 2, 2}));
  EXPECT_EQ(values(b.forward.full.indices), (Ints{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(values(b.forward.diag.counts), (Ints{0, 0, 1, 1}));
  EXPECT_EQ(values(b.forward.diag.indices), (Ints{0, 0, 2, 3}));
  EXPECT_EQ(text(b.forward.mask), "not given");
  EXPECT_EQ(values(b.backward.full.counts), (Ints{4, 4, 0, 0}));
  EXPECT_EQ(values(b.backward.full.indices), (Ints{0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(b.backward.diag.counts), (Ints{0, 0, 1, 1}));
  EXPECT_EQ(values(b.backward.diag.indices), (Ints{0, 0, 2, 3}));
  EXPECT_EQ(values(b.valid_upper), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(values(b.valid_lower), (Ints{0, 0, 0, 0}));
}

// Rows whose history is valid on [0, L) of 3 blocks: L = 200 and 256 and 0; then 1 block of candidates.
TEST(ListsFromSessions, DenseHistoryPaddedAfter) {
  const i64 rows = 3, seqlen = 512;
  const Ints cu{0, 512, 0, 512, 0, 512}, slots{128, 128, 128}, valid{200, 256, 0};
  Ints padding(rows * seqlen);
  for (i64 row = 0; row < rows; ++row)
    for (i64 at = valid[row]; at < 384; ++at) padding[row * seqlen + at] = 1;
  auto s = sessions(cu, slots, seqlen, rows);
  s.padding = {padding.data(), {rows, seqlen}};
  const auto lists = BlockListsHandle::from_sessions(s);
  const BlockSparsity b = built(lists);
  EXPECT_EQ(text(b.forward.full), "0 | - | - | 0 | 0 1 | 0 1 | - | 0 1 | - | - | - | -");
  EXPECT_EQ(text(b.forward.mask), "1 | 0 1 | - | 1 | - | - | - | - | - | - | - | -");
  EXPECT_EQ(text(b.forward.diag), "- | - | - | 3 | - | - | - | 3 | - | - | - | 3");
  EXPECT_EQ(text(b.backward.full), "0 3 | - | - | - | 0 1 3 | 0 1 3 | - | - | - | - | - | -");
  EXPECT_EQ(text(b.backward.mask), "1 | 0 1 3 | - | - | - | - | - | - | - | - | - | -");
  EXPECT_EQ(text(b.backward.diag), "- | - | - | 3 | - | - | - | 3 | - | - | - | 3");
  EXPECT_EQ(values(b.valid_upper), (Ints{0, 72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(b.valid_lower), (Ints{0, 128, 128, 0, 0, 0, 128, 0, 128, 128, 128, 0}));
  EXPECT_EQ(shape(b.valid_upper), (std::vector<i64>{3, 1, 4}));
}

// Two users, 2 + 1 and 1 + 2 blocks, and a tail of nobody; a prefix of 4, padding of 150 and 0 positions.
isoflash::Result<BlockListsHandle> packed_users() {
  const Ints cu{0, 384, 768}, slots{128, 256};
  Ints padding(896);
  std::fill(padding.begin(), padding.begin() + 154, 1);  // in the prefix it does not count
  auto s = sessions(cu, slots, 896);
  s.padding = {padding.data(), {1, 896}};
  s.prefix = 4;
  return BlockListsHandle::from_sessions(s);
}

TEST(ListsFromSessions, PackedUsers) {
  const auto lists = packed_users();
  const BlockSparsity b = built(lists);
  EXPECT_EQ(values(b.forward.mask.counts), (Ints{2, 2, 2, 0, 0, 0, 0}));
  EXPECT_EQ(values(b.forward.mask.indices), (Ints{0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(b.forward.full.counts), (Ints{0, 0, 0, 1, 1, 1, 0}));
  EXPECT_EQ(values(b.forward.full.indices), (Ints{0, 0, 0, 3, 3, 3, 0}));
  EXPECT_EQ(values(b.forward.diag.counts), (Ints{0, 0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(values(b.forward.diag.indices), (Ints{0, 0, 2, 0, 4, 5, 0}));
  EXPECT_EQ(text(b.backward.mask), "0 1 2 | 0 1 2 | - | - | - | - | -");
  EXPECT_EQ(text(b.backward.full), "- | - | - | 3 4 5 | - | - | -");
  EXPECT_EQ(text(b.backward.diag), "- | - | 2 | - | 4 | 5 | -");
  EXPECT_EQ(values(b.valid_upper), (Ints{4, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(b.valid_lower), (Ints{128, 26, 0, 0, 0, 0, 0}));
}

// "a | b" in columns, as the page has them.
std::string in_columns(const std::string& cells) {
  std::istringstream in(cells);
  std::string out, cell;
  for (std::size_t width = 0; std::getline(in, cell, '|'); width += 8) {
    const std::size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    out += (width > 0 ? std::string(width - 2 - out.size(), ' ') + "| " : "") + cell.substr(first, last - first + 1);
  }
  return out;
}

TEST(ListsPage, ExampleIsWhatTheBuilderGives) {
  std::ifstream file(std::string(ISOFLASH_SOURCE_DIR) + "/docs/block_lists.md");
  std::stringstream page;
  page << file.rdbuf();
  const auto lists = packed_users();
  const BlockSparsity b = built(lists);
  const auto bounds = [](const isoflash_tensor& t) {
    std::string cells;
    for (const i32 x : values(t)) cells += (cells.empty() ? "" : " | ") + std::to_string(x);
    return cells;
  };
  const std::pair<const char*, std::string> lines[] = {
      {"forward.full    ", text(b.forward.full)},  {"forward.mask    ", text(b.forward.mask)},
      {"forward.diag    ", text(b.forward.diag)},  {"backward.full   ", text(b.backward.full)},
      {"backward.mask   ", text(b.backward.mask)}, {"backward.diag   ", text(b.backward.diag)},
      {"valid_upper     ", bounds(b.valid_upper)}, {"valid_lower     ", bounds(b.valid_lower)}};
  for (const auto& [name, cells] : lines) {
    const std::string line = name + in_columns(cells) + "\n";
    EXPECT_NE(page.str().find(line), std::string::npos) << "docs/block_lists.md lacks this line of its example:\n" << line;
  }
}

// One user as its rows see it.
struct Slot {
  i32 begin, candidates, end, padding_begin, padding_end;  // positions of the row
};

RC_GTEST_PROP(ListsFromSessions, ShowWhatSessionsShow, ()) {
  const i32 block = 64 * *rc::gen::inRange(1, 3), prefix = *rc::gen::inRange(0, block + 1);
  const i64 rows = *rc::gen::inRange(1, 3), users = *rc::gen::inRange(0, 4);
  std::vector<std::vector<Slot>> row_slots(rows);
  Ints cu, slots;
  i32 seqlen = block * *rc::gen::inRange(0, 2);
  for (auto& row : row_slots) {
    i32 at = 0;
    cu.push_back(0);
    for (i64 u = 0; u < users; ++u) {
      const i32 history = block * *rc::gen::inRange(0, 3), candidates = history == 0 ? 0 : block * *rc::gen::inRange(0, 3);
      const Interval padding = random_part({at + std::min(prefix, history), at + history});
      row.push_back({at, at + history, at + history + candidates, padding.begin, padding.end});
      cu.push_back(at = row.back().end);
      slots.push_back(candidates);
    }
    seqlen = std::max(seqlen, at);
  }
  Ints flags(rows * seqlen);
  for (i64 row = 0; row < rows; ++row)
    for (const Slot& s : row_slots[row])
      for (i32 at = s.padding_begin; at < s.padding_end; ++at) flags[row * seqlen + at] = 7;
  BlockListsHandle::Sessions s{.cu_seqlens = {cu.data(), {rows, users + 1}},
                               .candidate_slot = {slots.data(), {rows, users}},
                               .padding = {flags.data(), {rows, seqlen}},
                               .seqlen = seqlen,
                               .prefix = prefix,
                               .block = block};
  const auto lists = BlockListsHandle::from_sessions(s);
  RC_ASSERT(lists.has_value());
  Problem p = dense(rows, 1, seqlen, seqlen);
  p.blocks = lists->blocks();
  const Validated valid = validated(p);
  for (i64 row = 0; row < rows; ++row) {
    for (i32 i = 0; i < seqlen; ++i) {
      for (i32 j = 0; j < seqlen; ++j) {
        bool expected = false;
        for (const Slot& u : row_slots[row]) {
          if (i < u.begin || i >= u.end || j < u.begin || j >= u.end) continue;
          const auto valid_history = [&](i32 x) { return x < u.candidates && (x < u.padding_begin || x >= u.padding_end); };
          expected = (valid_history(j) && (i >= u.candidates || valid_history(i))) || (i == j && i >= u.candidates);
        }
        RC_ASSERT(visible(valid.sequences[row], 0, i, j) == expected);
      }
    }
  }
}

// --- transposing -------------------------------------------------------------------------------------------------------

void expect_equal(const isoflash::BlockLists& a, const isoflash::BlockLists& b) {
  for (const auto& [x, y] : {std::pair{&a.mask, &b.mask}, {&a.full, &b.full}, {&a.diag, &b.diag}}) {
    EXPECT_EQ(shape(x->counts), shape(y->counts));
    EXPECT_EQ(values(x->counts), values(y->counts));
    EXPECT_EQ(shape(x->indices), shape(y->indices));
    EXPECT_EQ(values(x->indices), values(y->indices));
  }
}

RC_GTEST_PROP(ListsTransposed, TwiceIsTheSame, ()) {
  const i64 batch = *rc::gen::inRange(1, 3), heads = *rc::gen::inRange(1, 3);
  const i64 rows = *rc::gen::inRange(1, 6), columns = *rc::gen::inRange(1, 6);
  Ints counts[3], indices[3], kinds;
  for (i64 at = 0; at < batch * heads * rows; ++at) {
    for (int kind = 0; kind < 3; ++kind) counts[kind].push_back(0), indices[kind].resize((at + 1) * columns);
    for (i32 n = 0; n < columns; ++n) {
      const int kind = *rc::gen::inRange(0, 4);
      kinds.push_back(kind);
      if (kind < 3) indices[kind][at * columns + counts[kind].back()++] = n;
    }
  }
  const auto list = [&](int kind) {
    return BlockList{{counts[kind].data(), {batch, heads, rows}}, {indices[kind].data(), {batch, heads, rows, columns}}};
  };
  const BlockSparsity forward{.block_m = 64, .block_n = 128, .forward = {list(0), list(1), list(2)}};
  const auto once = BlockListsHandle::transpose(forward, columns);
  RC_ASSERT(once.has_value());
  BlockSparsity backward_only = once->blocks();

  // Brute force: column n lists the rows that list it, in ascending order.
  const isoflash::BlockLists& b = backward_only.backward;
  const BlockList* lists[] = {&b.mask, &b.full, &b.diag};
  for (int kind = 0; kind < 3; ++kind) {
    std::string expected;
    bool any = false;
    for (i64 outer = 0; outer < batch * heads; ++outer) {
      for (i64 n = 0; n < columns; ++n) {
        if (outer + n > 0) expected += " | ";
        std::string row;
        for (i64 m = 0; m < rows; ++m)
          if (kinds[(outer * rows + m) * columns + n] == kind) row += (row.empty() ? "" : " ") + std::to_string(m);
        any |= !row.empty();
        expected += row.empty() ? "-" : row;
      }
    }
    const std::string got = text(*lists[kind]);
    if (any || got != "not given") RC_ASSERT(got == expected);
  }

  const BlockSparsity both = once->blocks();
  backward_only.forward = {};
  const auto twice = BlockListsHandle::transpose(backward_only, rows);
  RC_ASSERT(twice.has_value());
  expect_equal(twice->blocks().forward, both.forward);
  expect_equal(twice->blocks().backward, both.backward);
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(ListsTransposed, SharedListsStayShared) {
  const Ints count{1, 2}, index{0, 9, 2, 0};  // 9 is past the count
  const BlockSparsity from{
      .block_m = 128, .block_n = 128, .forward = {.full = {{count.data(), {1, 1, 2}}, {index.data(), {1, 1, 2, 2}}}}};
  const auto lists = BlockListsHandle::transpose(from, 3);
  const BlockSparsity b = built(lists);
  EXPECT_EQ(text(b.forward.full), "0 | 0 2");
  EXPECT_EQ(text(b.backward.full), "0 1 | - | 1");
  EXPECT_EQ(shape(b.backward.full.counts), (std::vector<i64>{1, 1, 3}));
}

TEST(ListsTransposed, BoundsComeAlong) {
  const Ints count{1}, index{0}, upper{3}, lower{60};
  const BlockSparsity from{.block_m = 64,
                           .block_n = 64,
                           .forward = {.mask = {{count.data(), {1, 1, 1}}, {index.data(), {1, 1, 1, 1}}}},
                           .valid_upper = {upper.data(), {1, 1, 1}},
                           .valid_lower = {lower.data(), {1, 1, 1}}};
  const auto lists = BlockListsHandle::transpose(from, 1);
  EXPECT_EQ(values(built(lists).valid_upper), upper);
  EXPECT_EQ(values(built(lists).valid_lower), lower);
}

}  // namespace
}  // namespace iso
