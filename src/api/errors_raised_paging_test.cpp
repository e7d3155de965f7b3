// The errors of paged and new keys, sink and bias, met (see errors_raised_test.cpp).
#include <gtest/gtest.h>

#include "errors/error.h"
#include "support/findings.h"

namespace iso {
namespace {

using test::Calls;
using test::ExampleProblem;
using test::expect_error;
using test::plan_finding;

// --- paged and new keys ----------------------------------------------------------------------------------------------

// Two sequences with 5 and 8 keys in pages of 4; the first one's second page, of which only a row is used, is shared.
struct PagedProblem : ExampleProblem {
  PagedProblem() {
    page(7, 4);
    problem.block_table = arena.int32({2, 3}, {6, 0, -9, 0, 2, 77});
    problem.seqused_kv = arena.int32({5, 8});
  }
  void add_new_keys() {
    problem.k_new = arena.tensor(ISOFLASH_F32, {2, 6, 2, 8});
    problem.v_new = arena.tensor(ISOFLASH_F32, {2, 6, 2, 4});
  }
};

TEST(ErrorsRaised, BlockTableShape) {
  PagedProblem e;
  EXPECT_EQ(plan_finding(e.problem).message, "");
  e.problem.block_table = e.arena.int32({6}, {6, 0, 0, 0, 2, 0});
  expect_error<errors::BlockTableShape>(plan_finding(e.problem), {"(6)", "(2, max_pages)"});
  e.problem.block_table = e.arena.int32({3, 2}, {6, 0, 0, 0, 2, 0});
  expect_error<errors::BlockTableShape>(plan_finding(e.problem), {"(3, 2)", "(2, max_pages)"});
}

TEST(ErrorsRaised, BlockTableWithCuSeqlensKv) {
  PagedProblem e;
  e.problem.cu_seqlens_kv = e.arena.int32({0, 5, 13});
  expect_error<errors::BlockTableWithCuSeqlensKv>(plan_finding(e.problem), {"block_table", "cu_seqlens_kv", "seqused_kv"});
}

TEST(ErrorsRaised, PagedWithoutSeqused) {
  PagedProblem e;
  e.problem.seqused_kv.rank = 0;
  expect_error<errors::PagedWithoutSeqused>(plan_finding(e.problem), {"seqused_kv"});
}

TEST(ErrorsRaised, PageSize) {
  PagedProblem e;
  e.problem.k.shape[1] = e.problem.v.shape[1] = 0;
  expect_error<errors::PageSize>(plan_finding(e.problem), {"page_size", "0"});
  e.problem.k.shape[1] = e.problem.v.shape[1] = i64{1} << 40;
  e.problem.k.strides[1] = e.problem.v.strides[1] = 0;
  expect_error<errors::PageSize>(plan_finding(e.problem), {"page_size", "1099511627776"});
}

TEST(ErrorsRaised, SequsedBeyondPages) {
  for (const i32 bad : {-1, 13}) {
    PagedProblem e;
    e.problem.seqused_kv = e.arena.int32({5, bad});
    expect_error<errors::SequsedBeyondPages>(plan_finding(e.problem),
                                             {"seqused_kv[1]", std::to_string(bad).c_str(), "3 pages of 4", "12"});
  }
}

TEST(ErrorsRaised, PageIdRange) {
  for (const i32 bad : {-1, 7}) {
    PagedProblem e;
    e.problem.block_table = e.arena.int32({2, 3}, {6, 0, -9, 0, bad, 77});
    expect_error<errors::PageIdRange>(plan_finding(e.problem), {"block_table[1, 1]", std::to_string(bad).c_str(), "7"});
  }
}

TEST(ErrorsRaised, NewKeysUnpaired) {
  PagedProblem e;
  e.add_new_keys();
  EXPECT_EQ(plan_finding(e.problem).message, "");
  e.problem.k_new.rank = 0;
  expect_error<errors::NewKeysUnpaired>(plan_finding(e.problem), {"v_new is given", "k_new is not"});
}

TEST(ErrorsRaised, BackwardOfPagedKeys) {
  PagedProblem e;
  Calls calls(e);
  EXPECT_EQ(calls.run_forward().message, "");
  expect_error<errors::BackwardOfPagedKeys>(calls.run_backward(), {"block_table", "one tensor"});
}

TEST(ErrorsRaised, BackwardOfNewKeys) {
  ExampleProblem e;
  e.problem.k_new = e.arena.tensor(ISOFLASH_F32, {2, 6, 2, 8});
  e.problem.v_new = e.arena.tensor(ISOFLASH_F32, {2, 6, 2, 4});
  Calls calls(e);
  EXPECT_EQ(calls.run_forward().message, "");
  expect_error<errors::BackwardOfNewKeys>(calls.run_backward(), {"k_new", "one tensor"});
}

// What earlier errors say about the new layouts.
TEST(ErrorsRaised, NewLayoutsInOtherErrors) {
  PagedProblem pages;
  pages.problem.v.shape[1] = 5;
  expect_error<errors::ShapeMismatch>(plan_finding(pages.problem), {"v", "page_size", "5", "4"});
  pages.problem.v.shape[1] = 4;
  pages.problem.k.rank = 3;
  expect_error<errors::RankMismatch>(plan_finding(pages.problem), {"k", "3", "num_pages"});

  PagedProblem fresh;
  fresh.add_new_keys();
  fresh.problem.k_new.shape[1] = 10;
  expect_error<errors::ShapeMismatch>(plan_finding(fresh.problem), {"k_new", "seqlen_q", "10", "6"});
  fresh.problem.k_new.shape[1] = 6;
  fresh.problem.max_seqlen_kv = 13;
  expect_error<errors::MaxSeqlenExceeded>(plan_finding(fresh.problem), {"sequence 1", "14", "max_seqlen_kv"});

  ExampleProblem packed = ExampleProblem::packed({0, 5}, {0, 7});
  packed.problem.k_new = packed.arena.tensor(ISOFLASH_F32, {1, 5, 2, 8});
  packed.problem.v_new = packed.arena.tensor(ISOFLASH_F32, {5, 2, 4});
  expect_error<errors::PackedRank>(plan_finding(packed.problem), {"k_new", "total_q, num_heads_kv"});

  ExampleProblem mixed;  // dense queries, packed cache
  mixed.problem.k = mixed.arena.tensor(ISOFLASH_F32, {9, 2, 8});
  mixed.problem.v = mixed.arena.tensor(ISOFLASH_F32, {9, 2, 4});
  mixed.problem.k_new = mixed.arena.tensor(ISOFLASH_F32, {2, 6, 2, 8});
  mixed.problem.v_new = mixed.arena.tensor(ISOFLASH_F32, {2, 6, 2, 4});
  mixed.problem.cu_seqlens_kv = mixed.arena.int32({0, 3, 9});
  EXPECT_EQ(plan_finding(mixed.problem).message, "");
  mixed.problem.cu_seqlens_kv = mixed.arena.int32({0, 3, 6, 9});
  expect_error<errors::CuSeqlensBatch>(plan_finding(mixed.problem), {"q has 2 sequences", "3"});
}

// --- sink and bias ---------------------------------------------------------------------------------------------------

TEST(ErrorsRaised, TensorUnexpected) {
  ExampleProblem e;
  Calls calls(e);
  calls.forward.sink = e.arena.tensor(ISOFLASH_F32, {4});
  expect_error<errors::TensorUnexpected>(calls.run_forward(), {"isoflash_forward", "sink"});
  calls.forward.sink.rank = 0;
  calls.forward.v_new = e.problem.v;
  expect_error<errors::TensorUnexpected>(calls.run_forward(), {"isoflash_forward", "v_new"});
  calls.backward.dbias = e.arena.tensor(ISOFLASH_F32, {1, 1, 6, 10});
  expect_error<errors::TensorUnexpected>(calls.run_backward(), {"isoflash_backward", "dbias"});
}

TEST(ErrorsRaised, BiasShape) {
  ExampleProblem e;
  for (const auto& shape : {std::initializer_list<std::int64_t>{2, 4, 6, 10}, {1, 1, 1, 10}, {2, 1, 6, 10}}) {
    e.problem.bias = e.arena.tensor(ISOFLASH_F32, shape);
    EXPECT_EQ(plan_finding(e.problem).message, "");
  }
  for (const auto& shape : {std::initializer_list<std::int64_t>{4, 6, 10}, {2, 4, 6, 1}, {2, 4, 6, 11}, {2, 2, 6, 10}}) {
    e.problem.bias = e.arena.tensor(ISOFLASH_F32, shape);
    expect_error<errors::BiasShape>(plan_finding(e.problem), {"batch 2 or 1", "seqlen_q 6 or 1", "seqlen_kv 10"});
  }
  ExampleProblem packed = ExampleProblem::packed({0, 5, 7}, {0, 4, 12});
  packed.problem.bias = packed.arena.tensor(ISOFLASH_F32, {1, 7, 9});
  EXPECT_EQ(plan_finding(packed.problem).message, "");
  packed.problem.bias = packed.arena.tensor(ISOFLASH_F32, {1, 7, 7});
  expect_error<errors::BiasShape>(plan_finding(packed.problem), {"(1, 7, 7)", "total_q 7 or 1", "at least 8"});
}

TEST(ErrorsRaised, ScoreTermDtype) {
  ExampleProblem e;
  e.problem.sink = e.arena.tensor(ISOFLASH_BF16, {4});
  expect_error<errors::ScoreTermDtype>(plan_finding(e.problem), {"sink", "bfloat16", "float32"});
  e.problem.sink.rank = 0;
  e.problem.bias = e.arena.tensor(ISOFLASH_F16, {1, 1, 6, 10});
  expect_error<errors::ScoreTermDtype>(plan_finding(e.problem), {"bias", "float16", "float32"});
}

// Gradients of sink and bias keep the rules of all that is written.
TEST(ErrorsRaised, GradientsOfSinkAndBias) {
  ExampleProblem e;
  e.problem.sink = e.arena.tensor(ISOFLASH_F32, {4});
  e.problem.bias = e.arena.tensor(ISOFLASH_F32, {1, 4, 1, 10});
  Calls calls(e);
  EXPECT_EQ(calls.run_forward().message, "");
  EXPECT_EQ(calls.run_backward().message, "");
  const isoflash_tensor dbias = calls.backward.dbias;
  calls.backward.dbias.strides[1] = 0;
  expect_error<errors::GradientLayout>(calls.run_backward(), {"dbias", "gradient of bias", "num_heads_q"});
  calls.backward.dbias = e.arena.tensor(ISOFLASH_F32, {2, 4, 6, 10});
  expect_error<errors::PlanShape>(calls.run_backward(), {"dbias", "(2, 4, 6, 10)", "(1, 4, 1, 10)"});
  calls.backward.dbias = dbias;
  calls.backward.dbias.data = calls.backward.dsink.data;
  expect_error<errors::OutputAliases>(calls.run_backward(), {"dsink", "dbias"});
  calls.backward.dbias.rank = calls.backward.dsink.rank = 0;
  EXPECT_EQ(calls.run_backward().message, "") << "gradients that are not wanted may be left out";
}

}  // namespace
}  // namespace iso
