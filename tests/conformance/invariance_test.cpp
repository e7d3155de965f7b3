// A row's results do not depend on what it shares a call with: candidates and users that come, go or change places, and a
// history that is computed with it or comes from a cache. Every bit stays.
#include <gtest/gtest.h>

#include "conformance/call.h"

namespace iso::conformance {
namespace {

constexpr u64 kSeed = 11;

// A case with its tensors, run once.
struct Trial {
  Case c;
  Layout layout;
  CaseTensors tensors;

  explicit Trial(const std::string& text)
      : c(parse_case(text).value()), layout(layout_of(c)), tensors(make_tensors(c, layout, kSeed)) {}

  void run(const std::string& level) {
    const auto call = Call::prepare(c, layout.arrays, tensors, {"cpu", level}, 2);
    ASSERT_TRUE(call) << print_case(c) << ": " << call.error().message;
    ASSERT_EQ(call->forward(tensors), "") << print_case(c);
    if (c.backward) {
      ASSERT_EQ(call->backward(tensors), "") << print_case(c);
    }
  }
  const Sequence& sequence(i64 b) const { return layout.sequences[b]; }
};

// The rows of one batch entry of a tensor, in bits.
std::vector<u32> row_bits(const Tensor& t, i64 batch, i64 row) {
  const i32 first = t.rank - 3;
  Tensor one = t;
  one.data = static_cast<char*>(t.data) +
             dtype_size(t.dtype) * ((t.rank == 4 ? batch * t.strides[0] : 0) + row * t.strides[first]);
  one.rank = 2;
  for (i32 axis = 0; axis < 2; ++axis) {
    one.shape[axis] = t.shape[first + 1 + axis];
    one.strides[axis] = t.strides[first + 1 + axis];
  }
  return element_bits(one);
}

void copy_row(const Tensor& from, i64 from_batch, i64 from_row, const Tensor& to, i64 to_batch, i64 to_row) {
  for (i64 head = 0; head < from.shape[from.rank - 2]; ++head)
    for (i64 d = 0; d < from.shape[from.rank - 1]; ++d)
      store(to, reference::row_offset(to, to_batch, to_row, head) + d * to.strides[to.rank - 1],
            element(from, reference::row_offset(from, from_batch, from_row, head) + d * from.strides[from.rank - 1]));
}

void copy_query(const Trial& from, i64 from_sequence, i64 from_row, Trial& to, i64 to_sequence, i64 to_row) {
  const Sequence &a = from.sequence(from_sequence), &b = to.sequence(to_sequence);
  copy_row(from.tensors.at.q, a.q_batch, a.q_row_begin + from_row, to.tensors.at.q, b.q_batch, b.q_row_begin + to_row);
  if (from.c.backward && to.c.backward)
    copy_row(from.tensors.at.dout, a.q_batch, a.q_row_begin + from_row, to.tensors.at.dout, b.q_batch,
             b.q_row_begin + to_row);
}
void copy_key(const Trial& from, i64 from_sequence, i32 from_key, Trial& to, i64 to_sequence, i32 to_key) {
  const KvPlace a = kv_place(from.sequence(from_sequence), from_key), b = kv_place(to.sequence(to_sequence), to_key);
  const CaseTensors &x = from.tensors, &y = to.tensors;
  copy_row(a.is_new ? x.k_new : x.at.k, a.batch, a.row, b.is_new ? y.k_new : y.at.k, b.batch, b.row);
  copy_row(a.is_new ? x.v_new : x.at.v, a.batch, a.row, b.is_new ? y.v_new : y.at.v, b.batch, b.row);
}

void expect_same_query(const Trial& x, i64 x_sequence, i64 x_row, const Trial& y, i64 y_sequence, i64 y_row) {
  const Sequence &a = x.sequence(x_sequence), &b = y.sequence(y_sequence);
  const i64 row_a = a.q_row_begin + x_row, row_b = b.q_row_begin + y_row;
  const std::string what = "row " + std::to_string(x_row) + " of sequence " + std::to_string(x_sequence) + " of '" +
                           print_case(x.c) + "' and row " + std::to_string(y_row) + " of sequence " +
                           std::to_string(y_sequence) + " of '" + print_case(y.c) + "'";
  ASSERT_EQ(row_bits(x.tensors.at.out, a.q_batch, row_a), row_bits(y.tensors.at.out, b.q_batch, row_b)) << "out: " << what;
  for (i64 head = 0; head < x.c.num_heads_q; ++head)
    ASSERT_EQ(float_bits(element(x.tensors.at.lse, reference::lse_offset(x.tensors.at.lse, a.q_batch, head, row_a))),
              float_bits(element(y.tensors.at.lse, reference::lse_offset(y.tensors.at.lse, b.q_batch, head, row_b))))
        << "lse: " << what;
  if (x.c.backward && y.c.backward) {
    ASSERT_EQ(row_bits(x.tensors.at.dq, a.q_batch, row_a), row_bits(y.tensors.at.dq, b.q_batch, row_b)) << "dq: " << what;
  }
}

// dk and dv of a key that only its own group's queries see.
void expect_same_key(const Trial& x, i64 x_sequence, i64 x_key, const Trial& y, i64 y_sequence, i64 y_key) {
  const Sequence &a = x.sequence(x_sequence), &b = y.sequence(y_sequence);
  for (const auto gradient : {&BackwardTensors::dk, &BackwardTensors::dv})
    ASSERT_EQ(row_bits(x.tensors.at.*gradient, a.kv_batch, a.kv_row_begin + x_key),
              row_bits(y.tensors.at.*gradient, b.kv_batch, b.kv_row_begin + y_key))
        << "gradient of key " << x_key << " of '" << print_case(x.c) << "' and " << y_key << " of '" << print_case(y.c)
        << "'";
}

// A level, a type and a size of candidate groups.
class Invariance : public testing::TestWithParam<std::tuple<std::string, std::string, int>> {
 protected:
  std::string level() const { return std::get<0>(GetParam()); }
  std::string dtype() const { return std::get<1>(GetParam()); }
  int group() const { return std::get<2>(GetParam()); }
  // Rows that are queries and keys alike.
  std::string text(const std::string& lengths, const std::string& candidates, const std::string& more = "") const {
    return "bwd " + dtype() + " packed q=" + lengths + " k=" + lengths +
           " h=4/2 d=40 kind=causal context=2 candidates=" + candidates +
           (group() == 1 ? "" : " group=" + std::to_string(group())) + more;
  }
};

// Which other candidates there are, and in what order, is nothing to a candidate and to the history.
TEST_P(Invariance, OtherCandidatesComeGoAndChangePlaces) {
  const i32 shared = 75, group_rows = group(), groups = 5;
  Trial all(text(std::to_string(shared + groups * group_rows), std::to_string(groups * group_rows)));
  ASSERT_NO_FATAL_FAILURE(all.run(level()));
  for (const std::vector<int>& kept : {std::vector<int>{3}, {0, 4, 1}, {4, 3, 2, 1, 0}, {1, 0, 2, 4, 3}}) {
    const i32 candidates = static_cast<i32>(kept.size()) * group_rows;
    Trial some(text(std::to_string(shared + candidates), std::to_string(candidates)));
    const auto source = [&](i32 row) {
      return row < shared ? row : shared + kept[(row - shared) / group_rows] * group_rows + (row - shared) % group_rows;
    };
    for (i32 row = 0; row < shared + candidates; ++row) {
      copy_query(all, 0, source(row), some, 0, row);
      copy_key(all, 0, source(row), some, 0, row);
    }
    ASSERT_NO_FATAL_FAILURE(some.run(level()));
    for (i32 row = 0; row < shared + candidates; ++row) {
      ASSERT_NO_FATAL_FAILURE(expect_same_query(all, 0, source(row), some, 0, row));
      // dk and dv are sums over query rows, whose last bits may depend on where the rows stand.
      if (row < shared || source(row) != row) continue;
      ASSERT_NO_FATAL_FAILURE(expect_same_key(all, 0, row, some, 0, row));
    }
  }
}

// So are other users, and a user's place in the batch.
TEST_P(Invariance, OtherUsersComeGoAndChangePlaces) {
  const std::vector<i32> lengths = {75, 140, 9, 61}, candidates = {40, 50, 4, 1};
  for (const std::string more : {"", " sink=normal"}) {
    Trial all(text("75,140,9,61", "40,50,4,1", more));
    ASSERT_NO_FATAL_FAILURE(all.run(level()));
    for (const std::vector<int>& kept : {std::vector<int>{1}, {2, 0}, {3, 2, 1, 0}}) {
      std::string some_lengths, some_candidates;
      for (const int b : kept) {
        some_lengths += (some_lengths.empty() ? "" : ",") + std::to_string(lengths[b]);
        some_candidates += (some_candidates.empty() ? "" : ",") + std::to_string(candidates[b]);
      }
      Trial some(text(some_lengths, some_candidates, more));
      for (std::size_t b = 0; b < kept.size(); ++b)
        for (i32 row = 0; row < lengths[kept[b]]; ++row) {
          copy_query(all, kept[b], row, some, static_cast<i64>(b), row);
          copy_key(all, kept[b], row, some, static_cast<i64>(b), row);
        }
      ASSERT_NO_FATAL_FAILURE(some.run(level()));
      for (std::size_t b = 0; b < kept.size(); ++b)
        for (i32 row = 0; row < lengths[kept[b]]; ++row) {
          ASSERT_NO_FATAL_FAILURE(expect_same_query(all, kept[b], row, some, static_cast<i64>(b), row));
          ASSERT_NO_FATAL_FAILURE(expect_same_key(all, kept[b], row, some, static_cast<i64>(b), row));
        }
    }
  }
}

// Candidates scored against a cache of the history have the bits of the call that computes all of it at once.
TEST_P(Invariance, CachedHistoryGivesTheBitsOfTheOnePassCall) {
  if (dtype() != "f32") GTEST_SKIP() << "promised for float32";
  const std::vector<i32> history = {63, 4, 190}, candidates = {117, 40, 61};
  Trial whole(text("180,44,251", "117,40,61"));
  ASSERT_NO_FATAL_FAILURE(whole.run(level()));
  const std::string rows = "q=117,40,61 ", keys = "k=63,4,190 ";
  for (const std::string& cache :
       {rows + keys + "new", rows + "k=200 usedk=63,4,190 kv=dense new", rows + keys + "kv=paged:1 new",
        rows + keys + "kv=paged:16 new", rows + keys + "kv=paged:100 new", rows + keys + "kv=paged:256 new"}) {
    Trial cached("fwd f32 packed " + cache +
                 " h=4/2 d=40 kind=causal context=2 candidates=117,40,61 group=" + std::to_string(group()));
    for (i64 b = 0; b < 3; ++b) {
      for (i32 j = 0; j < history[b] + candidates[b]; ++j) copy_key(whole, b, j, cached, b, j);
      for (i32 row = 0; row < candidates[b]; ++row) copy_query(whole, b, history[b] + row, cached, b, row);
    }
    ASSERT_NO_FATAL_FAILURE(cached.run(level()));
    for (i64 b = 0; b < 3; ++b)
      for (i32 row = 0; row < candidates[b]; ++row)
        ASSERT_NO_FATAL_FAILURE(expect_same_query(whole, b, history[b] + row, cached, b, row));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Invariance,
                         testing::Combine(testing::ValuesIn(runnable_levels()), testing::Values("f32", "bf16"),
                                          testing::Values(1, 3, 40)),
                         [](const auto& info) {
                           const std::string level = std::get<0>(info.param);
                           return (level.empty() ? "picked" : level) + "_" + std::get<1>(info.param) + "_groups_of_" +
                                  std::to_string(std::get<2>(info.param));
                         });

// With pages too: a user has the same bits alone and beside others, wherever its pages lie and however long they are.
TEST(InvarianceOfPages, UsersAloneAndTogether) {
  for (const std::string& level : runnable_levels()) {
    for (const std::string dtype : {"f32", "bf16"}) {
      Trial together("fwd " + dtype + " packed q=40,90,17 k=63,150,4 kv=paged:16 new h=4/2 d=40 context=2 " +
                     "candidates=40,90,17");
      Trial alone("fwd " + dtype + " packed q=90 k=150 kv=paged:100 new h=4/2 d=40 context=2 candidates=90");
      for (i32 j = 0; j < 240; ++j) copy_key(together, 1, j, alone, 0, j);
      for (i32 row = 0; row < 90; ++row) copy_query(together, 1, row, alone, 0, row);
      ASSERT_NO_FATAL_FAILURE(together.run(level));
      ASSERT_NO_FATAL_FAILURE(alone.run(level));
      for (i32 row = 0; row < 90; ++row) ASSERT_NO_FATAL_FAILURE(expect_same_query(together, 1, row, alone, 0, row));
    }
  }
}

}  // namespace
}  // namespace iso::conformance
