// Every error of the builders of block lists, met.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "errors/error.h"
#include "isoflash/isoflash.hpp"
#include "support/example_problem.h"

namespace iso {
namespace {

using isoflash::BlockListsHandle;
using Ints = std::vector<i32>;
using Built = isoflash::Result<BlockListsHandle>;

// The lists are refused with error E, and its line names all of `parts`.
template <class E>
void expect_error(const Built& lists, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(lists) << "expected error " << E::kId;
  EXPECT_EQ(lists.error().id(), E::kId) << lists.error().name() << ": " << lists.error().message();
  for (const char* part : parts)
    EXPECT_NE(lists.error().message().find(part), std::string::npos)
        << "no \"" << part << "\" in: " << lists.error().message();
}

// Two rows of two users each: 2 blocks of history and 1 of candidates; 1 and 1.
struct Example {
  Ints cu{0, 384, 640, 0, 384, 640}, slots{128, 128, 128, 128}, padding = Ints(2 * 768);
  BlockListsHandle::Sessions sessions{.cu_seqlens = {cu.data(), {2, 3}},
                                      .candidate_slot = {slots.data(), {2, 2}},
                                      .padding = {padding.data(), {2, 768}},
                                      .seqlen = 768,
                                      .prefix = 4,
                                      .block = 128};
  Built build() const { return BlockListsHandle::from_sessions(sessions); }
};

TEST(BuilderErrors, NoneByTheExamples) {
  const Built sessions = Example().build();
  EXPECT_TRUE(sessions) << sessions.error().message();
  const test::ExampleProblem e;
  isoflash_block_lists_handle* lists = nullptr;
  EXPECT_EQ(isoflash_block_lists_from_problem(&e.problem, 64, 64, &lists, nullptr), 0);
  EXPECT_NE(isoflash_block_lists_view(lists), nullptr);
  isoflash_block_lists_destroy(lists);
  isoflash_block_lists_destroy(nullptr);
  EXPECT_EQ(isoflash_block_lists_view(nullptr), nullptr);
}

TEST(BuilderErrors, NullArguments) {
  const test::ExampleProblem e;
  const isoflash_tensor t{};
  isoflash_block_lists_handle* lists = nullptr;
  const int null = errors::NullArgument::kId;
  EXPECT_EQ(isoflash_block_lists_from_problem(nullptr, 64, 64, &lists, nullptr), null);
  EXPECT_EQ(isoflash_block_lists_from_problem(&e.problem, 64, 64, nullptr, nullptr), null);
  EXPECT_EQ(isoflash_block_lists_from_sessions(nullptr, &t, nullptr, 0, 0, 64, &lists, nullptr), null);
  EXPECT_EQ(isoflash_block_lists_from_sessions(&t, nullptr, nullptr, 0, 0, 64, &lists, nullptr), null);
  EXPECT_EQ(isoflash_block_lists_transpose(nullptr, 1, &lists, nullptr), null);
  EXPECT_EQ(lists, nullptr);
}

TEST(BuilderErrors, BlockSize) {
  const test::ExampleProblem e;
  for (const int64_t block : {0, -64, 100, 1 << 30}) {
    SCOPED_TRACE(block);
    isoflash_block_lists_handle* lists = nullptr;
    EXPECT_EQ(isoflash_block_lists_from_problem(&e.problem, block, 64, &lists, nullptr), errors::BlockSize::kId);
    EXPECT_EQ(isoflash_block_lists_from_problem(&e.problem, 64, block, &lists, nullptr), errors::BlockSize::kId);
    Example sessions;
    sessions.sessions.block = block;
    expect_error<errors::BlockSize>(sessions.build(), {std::to_string(block).c_str(), "64"});
    expect_error<errors::BlockSize>(BlockListsHandle::transpose({.block_m = 64, .block_n = block}, 1), {"block_n"});
  }
}

TEST(BuilderErrors, OfTheProblem) {
  test::ExampleProblem e;
  e.problem.v.rank = 0;
  isoflash_block_lists_handle* lists = nullptr;
  EXPECT_EQ(isoflash_block_lists_from_problem(&e.problem, 64, 64, &lists, nullptr), errors::TensorMissing::kId);
  e.problem.struct_size = 8;
  EXPECT_EQ(isoflash_block_lists_from_problem(&e.problem, 64, 64, &lists, nullptr), errors::StructSize::kId);
  EXPECT_EQ(lists, nullptr) << "a handle comes exactly with success";
}

TEST(ErrorsRaised, BuilderHasLists) {
  const float* none = nullptr;
  isoflash::Problem p{
      .q = {none, {1, 64, 1, 8}}, .k = {none, {1, 64, 1, 8}}, .v = {none, {1, 64, 1, 8}}, .out = {none, {1, 64, 1, 8}}};
  const Built lists = BlockListsHandle::from_problem(p, 64, 64);
  ASSERT_TRUE(lists) << lists.error().message();
  p.blocks = lists->blocks();
  expect_error<errors::BuilderHasLists>(BlockListsHandle::from_problem(p, 64, 64), {"block_m is 64", "expected 0"});
}

TEST(ErrorsRaised, SessionArrayShape) {
  Example flat;
  flat.sessions.cu_seqlens = {flat.cu.data(), {6}};
  expect_error<errors::SessionArrayShape>(flat.build(), {"cu_seqlens", "(6)", "(rows, users + 1)"});
  Example nothing;
  nothing.sessions.cu_seqlens = {nothing.cu.data(), {2, 0}};
  expect_error<errors::SessionArrayShape>(nothing.build(), {"cu_seqlens", "(2, 0)"});
  Example slots;
  slots.sessions.candidate_slot = {slots.slots.data(), {2, 3}};
  expect_error<errors::SessionArrayShape>(slots.build(), {"candidate_slot", "(2, 3)", "(2, 2)"});
  Example padding;
  padding.sessions.padding = {padding.padding.data(), {2, 640}};
  expect_error<errors::SessionArrayShape>(padding.build(), {"padding", "(2, 640)", "(2, 768)"});
  Example dtype;
  dtype.sessions.padding = {static_cast<void*>(dtype.padding.data()), isoflash::DType::f32, {2, 768}};
  expect_error<errors::IndexDtype>(dtype.build(), {"padding", "float32", "int32"});
  Example shared;
  shared.sessions.candidate_slot = {shared.slots.data(), {2, 2}, {0, 0}};
  EXPECT_TRUE(shared.build()) << "one slot length for all";
}

TEST(ErrorsRaised, SessionSeqlen) {
  for (const int64_t seqlen : {-128, 700, 1 << 29}) {
    Example e;
    e.sessions.seqlen = seqlen;
    expect_error<errors::SessionSeqlen>(e.build(), {std::to_string(seqlen).c_str(), "128"});
  }
}

TEST(ErrorsRaised, SessionStart) {
  Example late;
  late.cu[0] = 128;
  expect_error<errors::SessionStart>(late.build(), {"cu_seqlens[0][0] is 128", "starts at 0"});
  Example backwards;
  backwards.cu[4] = 640, backwards.cu[5] = 512;
  expect_error<errors::SessionStart>(backwards.build(), {"cu_seqlens[1][2] is 512", "640"});
  Example beyond;
  beyond.cu[2] = 896;
  expect_error<errors::SessionStart>(beyond.build(), {"cu_seqlens[0][2] is 896", "768"});
  Example ragged;
  ragged.cu[1] = 400;
  expect_error<errors::SessionStart>(ragged.build(), {"cu_seqlens[0][1] is 400", "multiple of the block, 128"});
}

TEST(ErrorsRaised, CandidateSlot) {
  for (const i32 slot : {-128, 100, 384}) {
    Example e;
    e.slots[1] = slot;
    expect_error<errors::CandidateSlot>(e.build(), {"candidate_slot[0][1]", std::to_string(slot).c_str(), "128", "256"});
  }
}

TEST(ErrorsRaised, SessionPrefix) {
  Example negative;
  negative.sessions.prefix = -1;
  expect_error<errors::SessionPrefix>(negative.build(), {"prefix is -1", "0 to 256"});
  Example long_one;
  long_one.sessions.prefix = 129;
  expect_error<errors::SessionPrefix>(long_one.build(), {"prefix is 129", "0 to 128", "user 1 of row 0"});
  Example empty;
  empty.cu = {0, 384, 384, 0, 384, 384}, empty.slots = {128, 0, 128, 0};
  EXPECT_TRUE(empty.build()) << "a user without positions needs no prefix";
}

TEST(ErrorsRaised, SessionPadding) {
  Example e;
  for (const int at : {10, 11, 12, 200}) e.padding[768 + at] = 1;
  expect_error<errors::SessionPadding>(e.build(), {"padding[1][200]", "user 0", "positions 10 up to 13"});
  Example prefix;
  prefix.padding[0] = prefix.padding[10] = 1;
  EXPECT_TRUE(prefix.build()) << "positions of the prefix are valid whatever padding says";
  Example candidates;
  candidates.padding[256] = candidates.padding[300] = 1;
  EXPECT_TRUE(candidates.build()) << "candidates see the history and themselves whatever padding says";
}

TEST(ErrorsRaised, TransposeNeedsLists) {
  expect_error<errors::TransposeNeedsLists>(BlockListsHandle::transpose({.block_m = 64, .block_n = 64}, 1), {"neither"});
  const Ints one{1}, zero{0};
  const isoflash::BlockLists packed{.full = {{one.data(), {1, 1}}, {zero.data(), {1, 1, 1}}}};
  expect_error<errors::TransposeNeedsLists>(
      BlockListsHandle::transpose({.block_m = 64, .block_n = 64, .backward = packed}, 1),
      {"blocks.backward.full.counts has shape (1, 1)"});
}

TEST(ErrorsRaised, TransposeNumBlocks) {
  const Ints one{1}, zero{0};
  const isoflash::BlockSparsity from{
      .block_m = 64, .block_n = 64, .forward = {.full = {{one.data(), {1, 1, 1}}, {zero.data(), {1, 1, 1, 1}}}}};
  expect_error<errors::TransposeNumBlocks>(BlockListsHandle::transpose(from, -1), {"-1"});
  expect_error<errors::TransposeNumBlocks>(BlockListsHandle::transpose(from, i64{1} << 40), {"1099511627776"});
}

// What a plan would refuse, the transpose refuses too.
TEST(BuilderErrors, OfTheLists) {
  const Ints one{1}, two{2}, zero{0};
  const auto transpose = [&](const Ints& counts, const Ints& indices, i64 num_blocks) {
    return BlockListsHandle::transpose(
        {.block_m = 64, .block_n = 64, .forward = {.full = {{counts.data(), {1, 1, 1}}, {indices.data(), {1, 1, 1, 1}}}}},
        num_blocks);
  };
  EXPECT_TRUE(transpose(one, zero, 1));
  expect_error<errors::BlockIndexRange>(transpose(one, one, 1), {"blocks.forward.full"});
  expect_error<errors::BlockIndexRange>(transpose(one, zero, 0), {"blocks.forward.full"});
  expect_error<errors::BlockCountRange>(transpose(two, zero, 1), {"blocks.forward.full"});
}

}  // namespace
}  // namespace iso
