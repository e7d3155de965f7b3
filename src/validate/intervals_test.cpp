#include "validate/intervals.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "support/example_problem.h"
#include "validate/validate.h"

namespace iso {
namespace {

using test::ExampleProblem;

i32 between(i32 low, i32 high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<i32>(low, high + 1)); }

// row_intervals of a problem, with a plain way to look at each number.
struct Given {
  isoflash_tensor tensor;
  bool packed;

  i32& at(i64 b, i64 head, i64 row, i64 n) const {
    const i64 index[4] = {b, head, row, n};
    i64 offset = 0;
    for (i32 axis = 0; axis < tensor.rank; ++axis)
      if (tensor.shape[axis] != 1) offset += index[axis + 4 - tensor.rank] * tensor.strides[axis];
    return static_cast<i32*>(tensor.data)[offset];
  }
};

// The rule, one row at a time: 0 or the id of the error.
int rule(const Given& given, i64 b, i64 head, i64 row, i64 count, i32 seqlen_kv) {
  i32 reached = 0;
  for (i64 n = 0; n < count; ++n) {
    const i32 begin = given.at(b, head, row, 2 * n), end = given.at(b, head, row, 2 * n + 1);
    if (begin > end) return errors::RowIntervalReversed::kId;
    if (begin < 0 || end > seqlen_kv) return errors::RowIntervalRange::kId;
    if (begin == end) continue;
    if (begin < reached) return errors::RowIntervalOrder::kId;
    reached = end;
  }
  return 0;
}

// Random intervals, shared or not, mostly right, in dense and packed problems: what the plan keeps is what was given, and
// what it refuses is what the rule refuses first.
RC_GTEST_PROP(RowIntervals, AreKeptAsGivenOrRefusedByTheRule, ()) {
  const bool packed = *rc::gen::arbitrary<bool>();
  const i32 first_q = between(0, 4), rows_q = packed ? first_q + between(0, 4) : between(0, 4);
  const i32 first_kv = between(0, 9), rows_kv = packed ? first_kv + between(0, 9) : between(0, 9);
  ExampleProblem e =
      packed ? ExampleProblem::packed({0, first_q, rows_q}, {0, first_kv, rows_kv}) : ExampleProblem(2, rows_q, rows_kv);
  if (!packed && *rc::gen::arbitrary<bool>()) {
    e.problem.seqused_q = e.arena.int32({between(0, rows_q), between(0, rows_q)});
    e.problem.seqused_kv = e.arena.int32({between(0, rows_kv), between(0, rows_kv)});
  }
  const i64 count = between(1, 3), heads = *rc::gen::arbitrary<bool>() ? 4 : 1;
  const i64 batch = packed || *rc::gen::arbitrary<bool>() ? 1 : 2;
  Given given{packed ? e.arena.tensor(ISOFLASH_I32, {heads, rows_q, 2 * count})
                     : e.arena.tensor(ISOFLASH_I32, {batch, heads, rows_q, 2 * count}),
              packed};
  for (i64 b = 0; b < batch; ++b)
    for (i64 head = 0; head < heads; ++head)
      for (i64 row = 0; row < rows_q; ++row) {
        std::vector<i32> ends(2 * static_cast<std::size_t>(count));
        for (i32& end : ends) end = between(0, min_of(rows_kv, 4));
        std::sort(ends.begin(), ends.end());
        for (i64 n = 0; n < 2 * count; ++n) given.at(b, head, row, n) = ends[static_cast<std::size_t>(n)];
      }
  if (rows_q > 0 && between(0, 1) == 0)
    given.at(between(0, static_cast<i32>(batch) - 1), between(0, static_cast<i32>(heads) - 1), between(0, rows_q - 1),
             between(0, static_cast<i32>(2 * count) - 1)) = between(-1, rows_kv + 1);
  e.problem.row_intervals = given.tensor;
  if (between(0, 4) == 0) e.problem.row_intervals.strides[packed ? 0 : 1] = 0, given.tensor = e.problem.row_intervals;

  const auto lengths = [&] {
    isoflash_problem without = e.problem;
    without.row_intervals.rank = 0;
    return validate_problem(without)->sequences;
  }();
  int expected = 0;
  for (std::size_t b = 0; b < lengths.size() && expected == 0; ++b)
    for (i64 head = 0; head < 4 && expected == 0; ++head)
      for (i64 i = 0; i < lengths[b].seqlen_q && expected == 0; ++i)
        expected = rule(given, static_cast<i64>(b), head, lengths[b].q_row_begin + i, count, lengths[b].seqlen_kv);

  const auto valid = validate_problem(e.problem);
  RC_TAG(expected);
  RC_ASSERT((valid ? 0 : valid.error().id()) == expected);
  if (!valid) return;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const Sequence& s = valid->sequences[b];
    RC_ASSERT(s.intervals.data != nullptr);
    for (i64 head = 0; head < 4; ++head)
      for (i32 i = 0; i < s.seqlen_q; ++i)
        for (i32 j = 0; j < s.seqlen_kv; ++j) {
          bool seen = false;
          for (i64 n = 0; n < count; ++n)
            seen = seen || (j >= given.at(static_cast<i64>(b), head, s.q_row_begin + i, 2 * n) &&
                            j < given.at(static_cast<i64>(b), head, s.q_row_begin + i, 2 * n + 1));
          RC_ASSERT(visible(s, head, i, j) == seen);
        }
  }
}

TEST(RowIntervals, RowsOutOfUseAreNotRead) {
  ExampleProblem e(2, 3, 5);
  e.problem.seqused_q = e.arena.int32({3, 1});
  std::vector<i32> values = {0, 5, 1, 2, 4, 4, 5, 5, -7, 99, 8, 2};
  e.problem.row_intervals = e.arena.int32({2, 1, 3, 2}, values);
  const auto valid = validate_problem(e.problem);
  ASSERT_TRUE(valid) << valid.error().message();
  EXPECT_TRUE(visible(valid->sequences[0], 3, 1, 1));
  EXPECT_FALSE(visible(valid->sequences[0], 3, 1, 2));
}

TEST(RowIntervals, EmptyOnesMayStandAnywhere) {
  ExampleProblem e(1, 1, 9);
  e.problem.row_intervals = e.arena.int32({1, 1, 1, 6}, {3, 6, 0, 0, 7, 9});
  const auto valid = validate_problem(e.problem);
  ASSERT_TRUE(valid) << valid.error().message();
  const KeyIntervals& kept = valid->sequences[0].intervals;
  EXPECT_EQ(kept.count, 3);
  EXPECT_EQ(std::vector<i32>(kept.data, kept.data + 6), (std::vector<i32>{3, 6, 7, 9, 9, 9}));
}

TEST(RowIntervals, ProblemsWithoutRowsOrHeadsAreFine) {
  ExampleProblem no_rows(2, 0, 9);
  no_rows.problem.row_intervals = no_rows.arena.tensor(ISOFLASH_I32, {2, 4, 0, 2});
  EXPECT_TRUE(validate_problem(no_rows.problem));
  ExampleProblem no_heads(2, 3, 9);
  for (isoflash_tensor* t : {&no_heads.problem.q, &no_heads.problem.out}) t->shape[2] = 0;
  no_heads.problem.lse.shape[1] = 0;
  no_heads.problem.row_intervals = no_heads.arena.tensor(ISOFLASH_I32, {2, 0, 3, 2});
  no_heads.problem.row_intervals.strides[1] = 0;
  EXPECT_TRUE(validate_problem(no_heads.problem));
}

}  // namespace
}  // namespace iso
