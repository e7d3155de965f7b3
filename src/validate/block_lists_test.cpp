#include "validate/block_lists.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "support/example_problem.h"
#include "validate/validate.h"

namespace iso {
namespace {

using test::ExampleProblem;

i32 between(i32 low, i32 high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<i32>(low, high + 1)); }

constexpr BlockKind kKinds[] = {BlockKind::mask, BlockKind::full, BlockKind::diag};
constexpr i64 kHeads = 4;

// What is seen of each block: (sequence, head, query block, key block) to kind.
using Blocks = std::map<std::tuple<i64, i64, i32, i32>, BlockKind>;

// How the lists of one problem are laid out.
struct Layout {
  bool packed, shared_batch, shared_heads;
  std::vector<i32> own, other;  // blocks of each sequence on the axis that indexes the lists, and on the other

  i64 batch() const { return packed || shared_batch ? 1 : static_cast<i64>(own.size()); }
  i64 heads() const { return shared_heads ? 1 : kHeads; }
  i64 total() const {
    i64 sum = 0;
    for (const i32 count : own) sum = packed ? sum + count : count;
    return sum;
  }
  i64 row(i64 b, i64 head, i32 block) const {
    i64 first = 0;
    for (i64 before = 0; packed && before < b; ++before) first += own[static_cast<std::size_t>(before)];
    return ((packed || shared_batch ? 0 : b) * heads() + (shared_heads ? 0 : head)) * total() + first + block;
  }
};

// The lists as the C ABI has them, entries of a row in a random order, what follows them arbitrary.
isoflash_block_lists make_lists(ExampleProblem& e, const Layout& layout, const Blocks& blocks, bool by_key) {
  isoflash_block_lists out{};
  for (const BlockKind kind : kKinds) {
    std::vector<std::vector<i32>> rows(static_cast<std::size_t>(layout.batch() * layout.heads() * layout.total()));
    for (const auto& [at, block_kind] : blocks) {
      const auto& [b, head, m, n] = at;
      if (block_kind != kind || (layout.shared_batch && b > 0) || (layout.shared_heads && head > 0)) continue;
      std::vector<i32>& row = rows[static_cast<std::size_t>(layout.row(b, head, by_key ? n : m))];
      row.insert(row.begin() + between(0, static_cast<i32>(row.size())), by_key ? m : n);
    }
    std::size_t width = static_cast<std::size_t>(between(0, 1));
    for (const auto& row : rows) width = std::max(width, row.size());
    if (width == 0) continue;
    std::vector<i32> counts, indices;
    for (auto row : rows) {
      counts.push_back(static_cast<i32>(row.size()));
      while (row.size() < width) row.push_back(between(-9, 9));
      indices.insert(indices.end(), row.begin(), row.end());
    }
    isoflash_block_list& list = kind == BlockKind::mask ? out.mask : kind == BlockKind::full ? out.full : out.diag;
    const i64 w = static_cast<i64>(width);
    list.counts = layout.packed ? e.arena.int32({layout.heads(), layout.total()}, counts)
                                : e.arena.int32({layout.batch(), layout.heads(), layout.total()}, counts);
    list.indices = layout.packed ? e.arena.int32({layout.heads(), layout.total(), w}, indices)
                                 : e.arena.int32({layout.batch(), layout.heads(), layout.total(), w}, indices);
  }
  return out;
}

// A problem with random blocks; both directions.
struct RandomProblem {
  ExampleProblem e;
  Layout forward, backward;
  Blocks blocks;

  RandomProblem() : e(make()) {
    const bool packed = e.problem.cu_seqlens_q.rank != 0;
    e.problem.blocks.block_m = 64 * between(1, 2);
    e.problem.blocks.block_n = 64 * between(1, 2);
    const auto sequences = validate_without_lists();
    forward.packed = backward.packed = packed;
    forward.shared_batch = backward.shared_batch = !packed && between(0, 1) == 0;
    forward.shared_heads = backward.shared_heads = between(0, 1) == 0;
    for (const Sequence& s : sequences) {
      forward.own.push_back(ceil_div(s.slot_q, static_cast<i32>(e.problem.blocks.block_m)));
      forward.other.push_back(ceil_div(s.slot_kv, static_cast<i32>(e.problem.blocks.block_n)));
    }
    backward.own = forward.other, backward.other = forward.own;
    for (std::size_t b = 0; b < sequences.size(); ++b)
      for (i64 head = 0; head < kHeads; ++head)
        for (i32 m = 0; m < forward.own[b]; ++m)
          for (i32 n = 0; n < forward.other[b]; ++n) {
            const auto key = std::tuple{static_cast<i64>(b), head, m, n};
            const auto first =
                std::tuple{forward.shared_batch ? 0 : static_cast<i64>(b), forward.shared_heads ? 0 : head, m, n};
            const auto shared = blocks.find(first);
            if (key != first) {
              if (shared != blocks.end()) blocks[key] = shared->second;
            } else if (const i32 kind = between(0, 3); kind != 0) {
              blocks[key] = static_cast<BlockKind>(kind);
            }
          }
    if (blocks.empty() && forward.own[0] > 0 && forward.other[0] > 0) RC_DISCARD("no blocks at all");
  }

  static ExampleProblem make() {
    if (*rc::gen::arbitrary<bool>()) return ExampleProblem(2, between(1, 200), between(1, 200));
    const i32 q = between(1, 150), kv = between(1, 150);
    return ExampleProblem::packed({0, q, q + between(1, 150)}, {0, kv, kv + between(1, 150)});
  }
  std::vector<Sequence> validate_without_lists() const {
    isoflash_problem without = e.problem;
    without.blocks = {};
    return validate_problem(without)->sequences;
  }
};

RC_GTEST_PROP(BlockLists, AreKeptAsGiven, ()) {
  RandomProblem r;
  r.e.problem.blocks.forward = make_lists(r.e, r.forward, r.blocks, false);
  const bool both = *rc::gen::arbitrary<bool>();
  // The backward may be spelled out for each head and sequence where the forward is shared.
  if (*rc::gen::arbitrary<bool>()) r.backward.shared_heads = r.backward.shared_batch = false;
  if (both) r.e.problem.blocks.backward = make_lists(r.e, r.backward, r.blocks, true);
  const auto valid = validate_problem(r.e.problem);
  if (!valid) RC_FAIL(valid.error().message());
  for (std::size_t b = 0; b < valid->sequences.size(); ++b) {
    const BlockLists& lists = valid->sequences[b].blocks;
    for (i64 head = 0; head < kHeads; ++head)
      for (i32 m = 0; m < r.forward.own[b]; ++m) {
        const BlockRow row = block_row(lists, head, m);
        RC_ASSERT(std::is_sorted(row.first, row.last, [](const auto& x, const auto& y) { return x.block < y.block; }));
        for (i32 n = 0; n < r.forward.other[b]; ++n) {
          const auto found = r.blocks.find({static_cast<i64>(b), head, m, n});
          RC_ASSERT(block_kind(lists, head, m, n) == (found == r.blocks.end() ? BlockKind::none : found->second));
        }
      }
  }
}

// One block more, less, or of another kind in the backward form: the error names the first block that differs.
RC_GTEST_PROP(BlockLists, ThatAreNotTransposesAreTold, ()) {
  RandomProblem r;
  r.e.problem.blocks.forward = make_lists(r.e, r.forward, r.blocks, false);
  r.backward.shared_heads = r.backward.shared_batch = false;
  Blocks changed = r.blocks;
  std::vector<std::tuple<i64, i64, i32, i32>> places;
  for (std::size_t b = 0; b < r.forward.own.size(); ++b)
    for (i64 head = 0; head < kHeads; ++head)
      for (i32 m = 0; m < r.forward.own[b]; ++m)
        for (i32 n = 0; n < r.forward.other[b]; ++n) places.push_back({static_cast<i64>(b), head, m, n});
  for (i32 changes = between(1, 3); changes > 0; --changes) {
    const auto& place = places[static_cast<std::size_t>(between(0, static_cast<i32>(places.size()) - 1))];
    const i32 kind = between(0, 3);
    if (kind == 0)
      changed.erase(place);
    else
      changed[place] = static_cast<BlockKind>(kind);
  }
  r.e.problem.blocks.backward = make_lists(r.e, r.backward, changed, true);
  const auto& d = r.e.problem.blocks.backward;
  if (d.mask.counts.rank + d.full.counts.rank + d.diag.counts.rank == 0) RC_DISCARD("no backward lists");

  std::set<std::tuple<i64, i64, i32, i32, BlockKind, bool>> differing;
  for (const auto& place : places) {
    const auto x = r.blocks.find(place), y = changed.find(place);
    const BlockKind in_x = x == r.blocks.end() ? BlockKind::none : x->second;
    const BlockKind in_y = y == changed.end() ? BlockKind::none : y->second;
    if (in_x == in_y) continue;
    const auto [b, head, m, n] = place;
    if (in_x != BlockKind::none) differing.insert({b, head, m, n, in_x, true});
    if (in_y != BlockKind::none) differing.insert({b, head, m, n, in_y, false});
  }
  const auto valid = validate_problem(r.e.problem);
  RC_ASSERT(valid.has_value() == differing.empty());
  if (valid) return;
  RC_ASSERT(valid.error().id() == errors::BlockListsNotTransposed::kId);
  const auto& [b, head, m, n, kind, in_forward] = *differing.begin();
  const auto has = [&](const std::string& text) { return valid.error().message().find(text) != std::string::npos; };
  RC_ASSERT(has("sequence " + std::to_string(b) + ", head " + std::to_string(head) + ","));
  RC_ASSERT(has("query block " + std::to_string(m) + ", key block " + std::to_string(n) + ":"));
  RC_ASSERT(has(kind == BlockKind::mask ? "as mask" : kind == BlockKind::full ? "as full" : "as diag"));
  RC_ASSERT(has(in_forward ? "not in blocks.backward" : "not in blocks.forward"));
}

// Any numbers in counts and indices: refused exactly if a rule is broken.
RC_GTEST_PROP(BlockLists, AreRefusedByTheRules, ()) {
  ExampleProblem e(1, 128, 192);
  e.problem.blocks.block_m = e.problem.blocks.block_n = 64;
  std::set<int> broken;
  std::set<std::pair<i32, i32>> listed;
  for (isoflash_block_list* list : {&e.problem.blocks.forward.mask, &e.problem.blocks.forward.full}) {
    std::vector<i32> counts, indices;
    std::set<std::pair<i32, i32>> here;
    for (i32 m = 0; m < 2; ++m) {
      counts.push_back(between(0, 60) == 0 ? between(-1, 3) : between(0, 2));
      if (counts.back() < 0 || counts.back() > 2) broken.insert(errors::BlockCountRange::kId);
      for (i32 n = 0; n < 2; ++n) {
        indices.push_back(between(0, 20) == 0 ? between(-1, 3) : between(0, 2));
        if (n >= counts.back() || counts.back() > 2) continue;
        if (indices.back() < 0 || indices.back() > 2) broken.insert(errors::BlockIndexRange::kId);
        if (!here.insert({m, indices.back()}).second) broken.insert(errors::BlockListedTwice::kId);
      }
    }
    for (const auto& entry : here)
      if (!listed.insert(entry).second) broken.insert(errors::BlockInTwoLists::kId);
    list->counts = e.arena.int32({1, 1, 2}, counts);
    list->indices = e.arena.int32({1, 1, 2, 2}, indices);
  }
  const auto valid = validate_problem(e.problem);
  RC_TAG(broken.empty());
  RC_ASSERT(valid.has_value() == broken.empty());
  if (!valid) RC_ASSERT(broken.contains(valid.error().id()));
}

// Bounds, shared or not, stand where valid_by_bounds() looks for them.
RC_GTEST_PROP(BlockLists, BoundsAreKeptAsGiven, ()) {
  RandomProblem r;
  r.e.problem.blocks.block_m = r.e.problem.blocks.block_n = 64;
  const auto sequences = r.validate_without_lists();
  Layout layout{r.forward.packed, !r.forward.packed && between(0, 1) == 0, between(0, 1) == 0, {}, {}};
  for (const Sequence& s : sequences) layout.own.push_back(ceil_div(max_of(s.slot_q, s.slot_kv), 64));
  std::vector<i32> upper, lower, counts;
  for (i64 n = 0; n < layout.batch() * layout.heads() * layout.total(); ++n) {
    upper.push_back(between(0, 64));
    lower.push_back(between(0, 64));
  }
  const auto tensor = [&](const std::vector<i32>& values) {
    return layout.packed ? r.e.arena.int32({layout.heads(), layout.total()}, values)
                         : r.e.arena.int32({layout.batch(), layout.heads(), layout.total()}, values);
  };
  r.e.problem.blocks.valid_upper = tensor(upper);
  r.e.problem.blocks.valid_lower = tensor(lower);
  // Lists with one entry a row: block 0, which the mask list holds.
  Layout rows = layout;
  rows.own.clear();
  for (const Sequence& s : sequences) rows.own.push_back(ceil_div(s.slot_q, 64));
  rows.shared_batch = rows.shared_heads = true;
  std::vector<i32> ones(static_cast<std::size_t>(rows.total()), 1), zeros(ones.size(), 0);
  isoflash_block_list& mask = r.e.problem.blocks.forward.mask;
  mask.counts = layout.packed ? r.e.arena.int32({1, rows.total()}, ones) : r.e.arena.int32({1, 1, rows.total()}, ones);
  mask.indices =
      layout.packed ? r.e.arena.int32({1, rows.total(), 1}, zeros) : r.e.arena.int32({1, 1, rows.total(), 1}, zeros);

  const auto valid = validate_problem(r.e.problem);
  if (!valid) RC_FAIL(valid.error().message());
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    const Sequence& s = valid->sequences[b];
    for (i64 head = 0; head < kHeads; ++head)
      for (i32 x = 0; x < max_of(s.slot_q, s.slot_kv); ++x) {
        const auto at = static_cast<std::size_t>(layout.row(static_cast<i64>(b), head, x / 64));
        RC_ASSERT(valid_by_bounds(s.blocks, head, x) == (x % 64 < upper[at] || x % 64 >= lower[at]));
      }
  }
}

// An empty tensor may have any number of heads; nothing is done for each of them.
TEST(BlockLists, WithoutQueriesTakeNoTime) {
  ExampleProblem e(1, 0, 70);
  const i64 heads = i64{1} << 40;
  for (isoflash_tensor* t : {&e.problem.q, &e.problem.out}) t->shape[2] = heads;
  e.problem.lse.shape[1] = heads;
  e.problem.blocks.block_m = e.problem.blocks.block_n = 64;
  isoflash_block_list& full = e.problem.blocks.forward.full;
  full.counts = full.indices = e.arena.tensor(ISOFLASH_I32, {1, 1, 0, 1});
  full.counts.rank = 3;
  full.counts.shape[1] = full.indices.shape[1] = heads;
  full.counts.strides[1] = full.indices.strides[1] = 1;
  const auto valid = validate_problem(e.problem);
  ASSERT_TRUE(valid) << valid.error().message();
  EXPECT_EQ(valid->sequences[0].blocks.stride_head, 0);
}

TEST(BlockLists, SequencesOfDifferentLengthsShareOneTable) {
  // Dense queries with a packed cache: the shared list names a block that only the first sequence has.
  ExampleProblem e(2, 64, 0);
  e.problem.k = e.arena.tensor(ISOFLASH_F32, {130, 2, 8});
  e.problem.v = e.arena.tensor(ISOFLASH_F32, {130, 2, 4});
  e.problem.cu_seqlens_kv = e.arena.int32({0, 130, 130});
  e.problem.k_new = e.arena.tensor(ISOFLASH_F32, {2, 64, 2, 8});
  e.problem.v_new = e.arena.tensor(ISOFLASH_F32, {2, 64, 2, 4});
  e.problem.blocks.block_m = e.problem.blocks.block_n = 64;
  e.problem.blocks.forward.full.counts = e.arena.int32({1, 1, 1}, {1});
  e.problem.blocks.forward.full.indices = e.arena.int32({1, 1, 1, 1}, {0});
  EXPECT_TRUE(validate_problem(e.problem));
  static_cast<i32*>(e.problem.blocks.forward.full.indices.data)[0] = 3;
  const auto valid = validate_problem(e.problem);
  ASSERT_FALSE(valid);
  EXPECT_EQ(valid.error().id(), errors::BlockIndexRange::kId);
  EXPECT_NE(valid.error().message().find("sequence 1"), std::string::npos) << valid.error().message();
}

}  // namespace
}  // namespace iso
