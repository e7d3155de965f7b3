// The C++ face: what it hands to the C ABI, and how its values behave.
#include "isoflash/isoflash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <type_traits>
#include <vector>

namespace {

using isoflash::DType;
using isoflash::Mask;
using isoflash::Plan;
using isoflash::Problem;
using isoflash::Result;
using isoflash::Tensor;

// Arrays of lengths are views: one that dies before the plan is made does not compile.
using Lengths = std::vector<std::int32_t>;
template <class T>
constexpr bool kOnlyLivingArrays = std::is_constructible_v<T, Lengths&>&& std::is_constructible_v<T, const Lengths&>&&
                                       std::is_constructible_v<T, std::span<const std::int32_t>> &&
                                   !std::is_constructible_v<T, Lengths>;
static_assert(kOnlyLivingArrays<isoflash::PerSequence> && kOnlyLivingArrays<Tensor>);

struct Memory {
  std::vector<float> q = std::vector<float>(1 * 12 * 4 * 8, 0.25f), k = std::vector<float>(1 * 12 * 2 * 8, 0.5f);
  std::vector<float> v = std::vector<float>(1 * 12 * 2 * 8, 3.0f), out = std::vector<float>(1 * 12 * 4 * 8);
  std::vector<float> lse = std::vector<float>(4 * 12);

  Problem problem() {
    return {.q = {q.data(), {1, 12, 4, 8}},
            .k = {k.data(), {1, 12, 2, 8}},
            .v = {v.data(), {1, 12, 2, 8}},
            .out = {out.data(), {1, 12, 4, 8}},
            .lse = {lse.data(), {1, 4, 12}},
            .mask = {.num_context = 2, .num_candidates = 4}};
  }
};

TEST(CppFace, PlansAndRuns) {
  Memory m;
  const Problem problem = m.problem();
  const Result<Plan> plan = Plan::create(problem, {.num_threads = 1});
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->kernel().substr(0, 4), "cpu:");
  EXPECT_EQ(plan->visible_pairs(), 8 * 8 + 4 * 9);
  const Result<void> done = plan->forward(problem);
  ASSERT_TRUE(done) << done.error().message();
  for (const float x : m.out) ASSERT_FLOAT_EQ(x, 3.0f) << "equal values have that value as their mean";

  std::vector<float> dout(m.out.size(), 1.0f), dv(m.v.size());
  isoflash::Workspace workspace;
  const isoflash::Backward backward{.q = problem.q,
                                    .k = problem.k,
                                    .v = problem.v,
                                    .out = problem.out,
                                    .lse = problem.lse,
                                    .dout = {dout.data(), {1, 12, 4, 8}},
                                    .dv = {dv.data(), {1, 12, 2, 8}}};
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Result<void> gradient = plan->backward(backward, workspace);
    ASSERT_TRUE(gradient) << gradient.error().message();
    EXPECT_GE(workspace.size(), plan->backward_workspace_size());
  }
  double total = 0;
  for (const float x : dv) total += x;
  EXPECT_NEAR(total, 12 * 4 * 8, 1e-2) << "each row hands its whole gradient to the values it sees";
}

TEST(CppFace, ErrorsAreValues) {
  Memory m;
  Problem problem = m.problem();
  problem.k = {m.k.data(), {1, 12, 3, 8}};
  const Result<Plan> plan = Plan::create(problem);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().name(), "HEAD_RATIO");
  EXPECT_EQ(plan.error().id(), 1004);
  EXPECT_NE(plan.error().message().find("num_heads_kv 3"), std::string::npos) << plan.error().message();
  EXPECT_NE(plan.error().json().find("HEAD_RATIO"), std::string::npos);

  problem = m.problem();
  const Result<Plan> good = Plan::create(problem);
  ASSERT_TRUE(good);
  isoflash::Workspace none(nullptr, 0);
  const Result<void> done = good->backward({}, none);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().name(), "TENSOR_MISSING");
}

TEST(CppFace, TensorsDescribeMemory) {
  float f = 0;
  const std::vector<std::int32_t> cu{0, 3, 7};
  const Tensor contiguous(&f, {2, 3, 4});
  EXPECT_EQ(contiguous.strides[0], 12);
  EXPECT_EQ(contiguous.strides[2], 1);
  EXPECT_EQ(contiguous.dtype, ISOFLASH_F32);
  const Tensor strided(&f, DType::bf16, {2, 3}, {0, -1});
  EXPECT_EQ(strided.strides[0], 0);
  EXPECT_EQ(strided.strides[1], -1);
  EXPECT_EQ(strided.dtype, ISOFLASH_BF16);
  const Tensor lengths(cu);
  EXPECT_EQ(lengths.shape[0], 3);
  EXPECT_EQ(lengths.data, cu.data());
  EXPECT_EQ(Tensor().rank, 0) << "not given";
}

TEST(CppFace, EveryFieldReachesTheProblem) {
  Memory m;
  Problem p = m.problem();
  const std::array<std::int32_t, 1> history{6};
  p.mask = Mask::window(3, 1);
  p.mask.history_len = history;
  p.mask.query_offset = 1;
  p.scale = 0.5;
  p.softcap_kind = isoflash::SoftcapKind::tanh;
  p.softcap = 30;
  p.deterministic = true;
  p.max_seqlen_q = 12;
  const float f = 0;
  const std::int32_t i = 0;
  p.row_intervals = {&i, {1, 1, 12, 2}};
  p.block_table = {&i, {1, 5}};
  p.k_new = {&f, {1, 12, 2, 8}};
  p.v_new = {&f, {1, 12, 2, 9}};
  p.sink = {&f, {4}};
  p.bias = {&f, {1, 1, 12, 3}};
  p.blocks.block_m = 64;
  p.blocks.block_n = 128;
  p.blocks.forward = {.mask = {{&i, {1, 1, 1}}, {&i, {1, 1, 1, 1}}},
                      .full = {{&i, {1, 1, 2}}, {&i, {1, 1, 2, 1}}},
                      .diag = {{&i, {1, 1, 3}}, {&i, {1, 1, 3, 1}}}};
  p.blocks.backward = {.mask = {{&i, {1, 1, 4}}, {}}, .full = {{&i, {1, 1, 5}}, {}}, .diag = {{&i, {1, 1, 6}}, {}}};
  p.blocks.valid_upper = {&i, {1, 1, 7}};
  p.blocks.valid_lower = {&i, {1, 1, 8}};
  const isoflash_problem c = isoflash::c_problem(p);
  EXPECT_EQ(c.row_intervals.shape[3], 2);
  EXPECT_EQ(c.block_table.shape[1], 5);
  EXPECT_EQ(c.k_new.shape[3], 8);
  EXPECT_EQ(c.v_new.shape[3], 9);
  EXPECT_EQ(c.sink.shape[0], 4);
  EXPECT_EQ(c.bias.shape[3], 3);
  EXPECT_EQ(c.blocks.block_m, 64);
  EXPECT_EQ(c.blocks.block_n, 128);
  EXPECT_EQ(c.blocks.forward.mask.counts.shape[2], 1);
  EXPECT_EQ(c.blocks.forward.mask.indices.rank, 4);
  EXPECT_EQ(c.blocks.forward.full.counts.shape[2], 2);
  EXPECT_EQ(c.blocks.forward.diag.counts.shape[2], 3);
  EXPECT_EQ(c.blocks.backward.mask.counts.shape[2], 4);
  EXPECT_EQ(c.blocks.backward.full.counts.shape[2], 5);
  EXPECT_EQ(c.blocks.backward.diag.counts.shape[2], 6);
  EXPECT_EQ(c.blocks.valid_upper.shape[2], 7);
  EXPECT_EQ(c.blocks.valid_lower.shape[2], 8);
  EXPECT_EQ(isoflash::block_sparsity(c.blocks).backward.diag.counts.shape[2], 6) << "and back";
  EXPECT_EQ(c.mask.history_kind, ISOFLASH_HISTORY_WINDOW);
  EXPECT_EQ(c.mask.window_left, 3);
  EXPECT_EQ(c.mask.window_right, 1);
  EXPECT_EQ(c.mask.history_len.values.data, history.data());
  EXPECT_EQ(c.mask.query_offset.value, 1);
  EXPECT_EQ(c.mask.num_context.value, ISOFLASH_DEFAULT);
  EXPECT_EQ(c.scale, 0.5);
  EXPECT_EQ(c.softcap_kind, ISOFLASH_SOFTCAP_TANH);
  EXPECT_EQ(c.softcap, 30);
  EXPECT_NE(c.deterministic, 0);
  EXPECT_EQ(c.max_seqlen_q, 12);
}

// Values of one everywhere: with a sink of the same weight as all keys together, every output is one half.
TEST(CppFace, SinkAndBiasForwardAndBackward) {
  const int keys = 12;
  Memory m;
  std::fill(m.q.begin(), m.q.end(), 0.0f);
  std::fill(m.v.begin(), m.v.end(), 1.0f);
  const std::vector<float> bias(keys, 2.0f), sink(4, 2.0f + std::log(12.0f));
  Problem problem = m.problem();
  problem.mask = {};
  problem.sink = {sink.data(), {4}};
  problem.bias = {bias.data(), {1, 1, 1, keys}};
  const Result<Plan> plan = Plan::create(problem, {.num_threads = 1});
  ASSERT_TRUE(plan) << plan.error().message();
  const Result<void> done = plan->forward(problem);
  ASSERT_TRUE(done) << done.error().message();
  for (const float x : m.out) ASSERT_NEAR(x, 0.5f, 1e-6);

  const std::vector<float> dout(m.out.size(), 1.0f);
  std::vector<float> dsink(4, 99.0f), dbias(keys, 99.0f);
  const Result<void> gradient = plan->backward({.q = problem.q,
                                                .k = problem.k,
                                                .v = problem.v,
                                                .out = problem.out,
                                                .lse = problem.lse,
                                                .dout = {dout.data(), {1, 12, 4, 8}},
                                                .sink = problem.sink,
                                                .bias = problem.bias,
                                                .dsink = {dsink.data(), {4}},
                                                .dbias = {dbias.data(), {1, 1, 1, keys}}});
  ASSERT_TRUE(gradient) << gradient.error().message();
  // out = p.8 ones with p = 1/2: moving the sink by x moves the sum of a row's 8 elements by -x/4 * 8.
  for (const float x : dsink) EXPECT_NEAR(x, -12 * 2.0, 1e-4) << "12 rows of each head";
  for (const float x : dbias) EXPECT_NEAR(x, 4 * 12 * 2.0 / keys, 1e-4) << "the keys share the opposite";
}

TEST(CppFace, NewKeysFollowTheCache) {
  std::vector<float> q(2 * 1 * 4, 0.0f), pages(3 * 2 * 4, 7.0f), k_new(q.size()), v_new(q.size(), 4.0f), out(q.size());
  const std::vector<std::int32_t> table{2, 0}, cached{3};
  const Problem problem{.q = {q.data(), {1, 2, 1, 4}},
                        .k = {pages.data(), {3, 2, 1, 4}},
                        .v = {pages.data(), {3, 2, 1, 4}},
                        .out = {out.data(), {1, 2, 1, 4}},
                        .seqused_kv = cached,
                        .mask = {.num_candidates = 2},
                        .block_table = {table.data(), {1, 2}},
                        .k_new = {k_new.data(), {1, 2, 1, 4}},
                        .v_new = {v_new.data(), {1, 2, 1, 4}}};
  for (const int splits : {0, 1, 2}) {
    const Result<Plan> plan = Plan::create(problem, {.num_threads = 1, .num_splits = splits});
    ASSERT_TRUE(plan) << plan.error().message();
    const Result<void> done = plan->forward(problem);
    ASSERT_TRUE(done) << done.error().message();
    for (const float x : out) EXPECT_FLOAT_EQ(x, (3 * 7 + 4) / 4.0f) << "three cached keys and the candidate's own";
  }
  EXPECT_FALSE(Plan::create(problem, {.num_splits = -1}));
}

TEST(CppFace, BlockListsOwnTheirArrays) {
  static_assert(std::is_nothrow_move_constructible_v<isoflash::BlockListsHandle>);
  static_assert(!std::is_copy_constructible_v<isoflash::BlockListsHandle>);
  Memory m;
  Problem problem = m.problem();
  Result<isoflash::BlockListsHandle> lists = isoflash::BlockListsHandle::from_problem(problem, 64, 64);
  ASSERT_TRUE(lists) << lists.error().message();
  const isoflash::BlockListsHandle moved = std::move(*lists);
  problem.blocks = moved.blocks();
  const Result<Plan> plan = Plan::create(problem);
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->visible_pairs(), 8 * 8 + 4 * 9);
  const Result<isoflash::BlockListsHandle> again = isoflash::BlockListsHandle::from_problem(problem, 64, 64);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().name(), "BUILDER_HAS_LISTS");
}

TEST(CppFace, MergesAndRefusesListsOfDifferentLength) {
  const std::vector<float> a{2}, b{4}, zero{0};
  std::vector<float> out{9}, lse{9};
  const Tensor of_out(out.data(), {1, 1, 1}), of_lse(lse.data(), {1, 1});
  const std::vector<Tensor> outs{{a.data(), {1, 1, 1}}, {b.data(), {1, 1, 1}}};
  const std::vector<Tensor> lses{{zero.data(), {1, 1}}, {zero.data(), {1, 1}}};
  const Result<void> done = isoflash::merge({outs, lses, of_out, of_lse});
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_FLOAT_EQ(out[0], 3.0f);
  const Result<void> refused = isoflash::merge({outs, std::span(lses).first(1), of_out, of_lse});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().name(), "MERGE_NUM_PARTS");
  const Result<void> nothing = isoflash::merge_backward({});
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().name(), "MERGE_NUM_PARTS");
}

TEST(CppFace, PackedSequences) {
  std::vector<float> q(7 * 2 * 4, 1.0f), kv(9 * 1 * 4, 1.0f), out(7 * 2 * 4);
  const std::vector<std::int32_t> cu_q{0, 3, 7}, cu_kv{0, 5, 9};
  const Problem problem{.q = {q.data(), {7, 2, 4}},
                        .k = {kv.data(), {9, 1, 4}},
                        .v = {kv.data(), {9, 1, 4}},
                        .out = {out.data(), {7, 2, 4}},
                        .cu_seqlens_q = cu_q,
                        .cu_seqlens_kv = cu_kv,
                        .mask = Mask::causal()};
  const Result<Plan> plan = Plan::create(problem);
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->visible_pairs(), (3 + 4 + 5) + (1 + 2 + 3 + 4));
  ASSERT_TRUE(plan->forward(problem));
  EXPECT_FLOAT_EQ(out[0], 1.0f);
}

}  // namespace
