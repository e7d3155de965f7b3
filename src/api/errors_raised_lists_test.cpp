// The errors of explicit intervals and block lists, met (see errors_raised_test.cpp).
#include <gtest/gtest.h>

#include "errors/error.h"
#include "support/findings.h"

namespace iso {
namespace {

using test::ExampleProblem;
using test::expect_error;
using test::plan_finding;

// --- explicit intervals ----------------------------------------------------------------------------------------------

// One interval for each row of both sequences and four heads (6 rows, 10 keys): all keys.
std::vector<i32> all_keys() {
  std::vector<i32> values;
  for (int row = 0; row < 2 * 4 * 6; ++row) values.insert(values.end(), {0, 10});
  return values;
}

// The two numbers of one row replaced.
ExampleProblem with_interval(int batch, int head, int row, i32 begin, i32 end) {
  std::vector<i32> values = all_keys();
  const std::size_t at = 2 * static_cast<std::size_t>((batch * 4 + head) * 6 + row);
  values[at] = begin, values[at + 1] = end;
  ExampleProblem e;
  e.problem.row_intervals = e.arena.int32({2, 4, 6, 2}, values);
  return e;
}

TEST(ErrorsRaised, RowIntervalsShape) {
  ExampleProblem e;
  e.problem.row_intervals = e.arena.tensor(ISOFLASH_I32, {2, 4, 6, 2});
  EXPECT_EQ(plan_finding(e.problem).message, "");
  for (const auto& shape : {std::initializer_list<std::int64_t>{2, 4, 6, 3},
                            {2, 4, 6, 8},
                            {2, 4, 5, 2},
                            {2, 2, 6, 2},
                            {3, 4, 6, 2},
                            {2, 4, 1, 2},
                            {4, 6, 2},
                            {2}}) {
    e.problem.row_intervals = e.arena.tensor(ISOFLASH_I32, shape);
    expect_error<errors::RowIntervalsShape>(plan_finding(e.problem), {"batch 2 or 1", "num_heads_q 4 or 1", "seqlen_q 6"});
  }
  ExampleProblem packed = ExampleProblem::packed({0, 5}, {0, 7});
  packed.problem.row_intervals = packed.arena.tensor(ISOFLASH_I32, {1, 4, 5, 2});
  expect_error<errors::RowIntervalsShape>(plan_finding(packed.problem), {"(1, 4, 5, 2)", "total_q 5"});
}

TEST(ErrorsRaised, RowIntervalsWithMask) {
  ExampleProblem e;
  e.problem.row_intervals = e.arena.tensor(ISOFLASH_I32, {1, 1, 6, 2});
  e.problem.mask.query_offset.value = 3;
  EXPECT_EQ(plan_finding(e.problem).message, "") << "query_offset goes with intervals";
  e.problem.mask.candidate_group_size = 2;
  expect_error<errors::RowIntervalsWithMask>(plan_finding(e.problem), {"mask.candidate_group_size"});
  e.problem.mask.num_context.value = 0;
  e.problem.mask.candidate_group_size = 1;
  expect_error<errors::RowIntervalsWithMask>(plan_finding(e.problem), {"mask.num_context"});
}

TEST(ErrorsRaised, RowIntervalReversed) {
  const ExampleProblem e = with_interval(1, 2, 3, 7, 6);
  expect_error<errors::RowIntervalReversed>(plan_finding(e.problem), {"sequence 1, head 2, row 3, interval 0", "[7, 6)"});
}

TEST(ErrorsRaised, RowIntervalRange) {
  const ExampleProblem low = with_interval(0, 3, 5, -1, 6), high = with_interval(1, 0, 0, 9, 11);
  expect_error<errors::RowIntervalRange>(plan_finding(low.problem), {"sequence 0, head 3, row 5", "[-1, 6)", "10"});
  expect_error<errors::RowIntervalRange>(plan_finding(high.problem), {"sequence 1, head 0, row 0", "[9, 11)", "10"});
  ExampleProblem used = with_interval(0, 0, 0, 0, 1);
  used.problem.seqused_kv = used.arena.int32({10, 9});
  expect_error<errors::RowIntervalRange>(plan_finding(used.problem), {"sequence 1, head 0, row 0", "[0, 10)", "9"});
}

TEST(ErrorsRaised, RowIntervalOrder) {
  for (const auto& [second_begin, second_end] : {std::pair{3, 8}, {0, 2}}) {
    ExampleProblem e;
    std::vector<i32> values;
    for (int row = 0; row < 6; ++row) values.insert(values.end(), {1, 4, 6, 6, row == 2 ? second_begin : 4, 8});
    values[2 * 6 + 5] = second_end;
    e.problem.row_intervals = e.arena.int32({1, 1, 6, 6}, values);
    expect_error<errors::RowIntervalOrder>(plan_finding(e.problem), {"row 2, interval 2", "before 4"});
  }
}

// --- block lists -----------------------------------------------------------------------------------------------------

// Two sequences with 130 queries and 200 keys, in blocks of 64: 3 query blocks and 4 key blocks. Full: key block 0 for all,
// and for each query block m also m + 1.
struct ListProblem : ExampleProblem {
  ListProblem() : ExampleProblem(2, 130, 200) {
    problem.blocks.block_m = problem.blocks.block_n = 64;
    problem.blocks.forward.full = list({1, 1, 3}, {2, 2, 2}, {0, 1, 0, 2, 0, 3}, 2);
  }
  isoflash_block_list list(std::initializer_list<std::int64_t> shape, const std::vector<i32>& counts,
                           const std::vector<i32>& indices, std::int64_t width) {
    isoflash_block_list out{};
    out.counts = arena.int32(shape, counts);
    const std::int64_t* n = shape.begin();
    out.indices = arena.int32({n[0], n[1], n[2], width}, indices);
    return out;
  }
};

TEST(ErrorsRaised, BlockSize) {
  for (const i64 bad : {0, 32, 96, -64}) {
    ListProblem e;
    e.problem.blocks.block_n = bad;
    expect_error<errors::BlockSize>(plan_finding(e.problem), {"block_n", std::to_string(bad).c_str(), "64"});
  }
  ListProblem e;
  EXPECT_EQ(plan_finding(e.problem).message, "");
  e.problem.blocks.block_m = i64{1} << 40;
  expect_error<errors::BlockSize>(plan_finding(e.problem), {"block_m"});
}

TEST(ErrorsRaised, BlockListsWithoutSize) {
  ListProblem e;
  e.problem.blocks.block_m = e.problem.blocks.block_n = 0;
  expect_error<errors::BlockListsWithoutSize>(plan_finding(e.problem), {"blocks.forward"});
  e.problem.blocks.forward = {};
  e.problem.blocks.valid_lower = e.arena.int32({0});
  expect_error<errors::BlockListsWithoutSize>(plan_finding(e.problem), {"blocks.valid_lower"});
}

TEST(ErrorsRaised, BlockListsMissing) {
  ListProblem e;
  e.problem.blocks.backward = e.problem.blocks.forward;
  e.problem.blocks.forward = {};
  expect_error<errors::BlockListsMissing>(plan_finding(e.problem), {"blocks.forward"});
}

TEST(ErrorsRaised, BlockListUnpaired) {
  ListProblem e;
  e.problem.blocks.forward.diag.counts = e.problem.blocks.forward.full.counts;
  expect_error<errors::BlockListUnpaired>(plan_finding(e.problem),
                                          {"blocks.forward.diag.counts is given", "blocks.forward.diag.indices is not"});
}

TEST(ErrorsRaised, BlockListShape) {
  ListProblem e;
  for (const auto& shape : {std::initializer_list<std::int64_t>{1, 1, 4}, {1, 2, 3}, {3, 1, 3}, {1, 3}, {1, 1, 3, 2}}) {
    e.problem.blocks.forward.full.counts = e.arena.tensor(ISOFLASH_I32, shape);
    expect_error<errors::BlockListShape>(plan_finding(e.problem),
                                         {"blocks.forward.full.counts", "batch 2 or 1", "num_blocks 3"});
  }
  ListProblem bounds;
  bounds.problem.blocks.valid_upper = bounds.arena.int32({1, 1, 3}, {0, 0, 0});
  bounds.problem.blocks.valid_lower = bounds.arena.int32({1, 1, 3}, {0, 0, 0});
  expect_error<errors::BlockListShape>(plan_finding(bounds.problem), {"blocks.valid_upper", "num_blocks 4"});

  ExampleProblem packed = ExampleProblem::packed({0, 65, 70}, {0, 64, 70});
  packed.problem.blocks.block_m = packed.problem.blocks.block_n = 64;
  packed.problem.blocks.forward.mask.counts = packed.arena.int32({1, 2}, {0, 0});
  packed.problem.blocks.forward.mask.indices = packed.arena.int32({1, 2, 1}, {0, 0});
  expect_error<errors::BlockListShape>(plan_finding(packed.problem), {"blocks.forward.mask.counts", "total_blocks 3"});
}

TEST(ErrorsRaised, BlockCountRange) {
  for (const i32 bad : {-1, 3}) {
    ListProblem e;
    e.problem.blocks.forward.full = e.list({1, 1, 3}, {2, bad, 2}, {0, 1, 0, 2, 0, 3}, 2);
    expect_error<errors::BlockCountRange>(
        plan_finding(e.problem),
        {"blocks.forward.full.counts", "sequence 0, head 0, block 1", std::to_string(bad).c_str()});
  }
}

TEST(ErrorsRaised, BlockIndexRange) {
  for (const i32 bad : {-1, 4}) {
    ListProblem e;
    e.problem.blocks.forward.full = e.list({1, 1, 3}, {2, 2, 2}, {0, 1, 0, 2, 0, bad}, 2);
    expect_error<errors::BlockIndexRange>(
        plan_finding(e.problem), {"blocks.forward.full.indices", "block 2, entry 1", std::to_string(bad).c_str(), "4"});
  }
  // Of its own sequence: in packed arrays the second sequence has but one block.
  ExampleProblem packed = ExampleProblem::packed({0, 65, 70}, {0, 65, 70});
  packed.problem.blocks.block_m = packed.problem.blocks.block_n = 64;
  packed.problem.blocks.forward.mask.counts = packed.arena.int32({1, 3}, {1, 1, 1});
  packed.problem.blocks.forward.mask.indices = packed.arena.int32({1, 3, 1}, {1, 1, 1});
  expect_error<errors::BlockIndexRange>(plan_finding(packed.problem), {"sequence 1, head 0, block 0, entry 0"});
}

TEST(ErrorsRaised, BlockListedTwice) {
  ListProblem e;
  e.problem.blocks.forward.full = e.list({1, 1, 3}, {2, 2, 2}, {0, 1, 2, 2, 0, 3}, 2);
  expect_error<errors::BlockListedTwice>(plan_finding(e.problem),
                                         {"blocks.forward.full", "block 1", "entries 0 and 1", "name block 2"});
}

TEST(ErrorsRaised, BlockInTwoLists) {
  ListProblem e;
  e.problem.blocks.forward.diag = e.list({2, 1, 3}, {0, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 3}, 1);
  expect_error<errors::BlockInTwoLists>(
      plan_finding(e.problem),
      {"sequence 1, head 0, block 2", "block 3", "blocks.forward.full (entry 1)", "blocks.forward.diag (entry 0)"});
}

TEST(ErrorsRaised, BlockListsNotTransposed) {
  ListProblem e;
  e.problem.blocks.backward.full = e.list({1, 1, 4}, {3, 1, 1, 1}, {2, 1, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0}, 3);
  EXPECT_EQ(plan_finding(e.problem).message, "");
  // Key block 1 lacks query block 0.
  e.problem.blocks.backward.full = e.list({1, 1, 4}, {3, 0, 1, 1}, {2, 1, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0}, 3);
  expect_error<errors::BlockListsNotTransposed>(
      plan_finding(e.problem), {"query block 0, key block 1", "in blocks.forward as full", "not in blocks.backward"});
  // The last sequence's last head has one block more.
  std::vector<i32> counts, indices;
  for (int row = 0; row < 8; ++row) {
    counts.insert(counts.end(), {3, 1, 1, 1});
    indices.insert(indices.end(), {0, 1, 2, 0, 0, 0, 1, 0, 0, 2, 0, 0});
  }
  counts.back() = 2;
  e.problem.blocks.backward.full = e.list({2, 4, 4}, counts, indices, 3);
  expect_error<errors::BlockListsNotTransposed>(
      plan_finding(e.problem),
      {"sequence 1, head 3, query block 0, key block 3", "in blocks.backward as full", "not in blocks.forward"});
  // The same blocks, one of another kind.
  e.problem.blocks.backward.full = e.list({1, 1, 4}, {3, 1, 1, 0}, {2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}, 3);
  e.problem.blocks.backward.mask = e.list({1, 1, 4}, {0, 0, 0, 1}, {0, 0, 0, 2}, 1);
  expect_error<errors::BlockListsNotTransposed>(plan_finding(e.problem), {"query block 2, key block 3"});
}

TEST(ErrorsRaised, BackwardListsUnused) {
  ListProblem e;
  e.problem.blocks.backward.full = e.list({1, 1, 4}, {3, 1, 1, 1}, {2, 1, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0}, 3);
  e.problem.k_new = e.arena.tensor(ISOFLASH_F32, {2, 130, 2, 8});
  e.problem.v_new = e.arena.tensor(ISOFLASH_F32, {2, 130, 2, 4});
  expect_error<errors::BackwardListsUnused>(plan_finding(e.problem), {"k_new"});
}

TEST(ErrorsRaised, ValidBoundsBlocks) {
  ExampleProblem e(2, 128, 128);
  e.problem.blocks.block_m = 64, e.problem.blocks.block_n = 128;
  e.problem.blocks.forward.mask.counts = e.arena.int32({1, 1, 2}, {1, 1});
  e.problem.blocks.forward.mask.indices = e.arena.int32({1, 1, 2, 1}, {0, 0});
  e.problem.blocks.valid_upper = e.problem.blocks.valid_lower = e.arena.int32({1, 1, 2}, {0, 0});
  expect_error<errors::ValidBoundsBlocks>(plan_finding(e.problem), {"64", "128"});
}

TEST(ErrorsRaised, ValidBoundsUnpaired) {
  ListProblem e;
  e.problem.blocks.valid_lower = e.arena.int32({1, 1, 4}, {0, 0, 0, 0});
  expect_error<errors::ValidBoundsUnpaired>(plan_finding(e.problem),
                                            {"blocks.valid_lower is given", "blocks.valid_upper is not"});
}

TEST(ErrorsRaised, ValidBoundRange) {
  for (const i32 bad : {-1, 65}) {
    ListProblem e;
    e.problem.blocks.valid_upper = e.arena.int32({1, 1, 4}, {0, 64, 1, 0});
    e.problem.blocks.valid_lower = e.arena.int32({2, 1, 4}, {0, 64, 1, 0, 0, 0, 0, bad});
    expect_error<errors::ValidBoundRange>(
        plan_finding(e.problem), {"blocks.valid_lower", "sequence 1, head 0, block 3", std::to_string(bad).c_str(), "64"});
  }
}

}  // namespace
}  // namespace iso
