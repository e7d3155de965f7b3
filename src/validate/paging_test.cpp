#include "validate/paging.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/example_problem.h"
#include "validate/validate.h"

namespace iso {
namespace {

using test::ExampleProblem;

i32 between(i32 low, i32 high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<i32>(low, high + 1)); }

// Where the definition in isoflash.h puts key j of sequence b.
KvPlace defined_place(const ExampleProblem& e, const std::vector<i32>& table, i64 max_pages, i64 page_size, i64 b, i32 j,
                      i32 cached, const std::vector<i32>& cu_q) {
  if (j >= cached) {
    const bool packed = e.problem.cu_seqlens_q.rank != 0;
    return {true, packed ? 0 : b, (packed ? cu_q[static_cast<std::size_t>(b)] : 0) + (j - cached)};
  }
  return {false, table[static_cast<std::size_t>(b * max_pages + j / page_size)], j % page_size};
}

RC_GTEST_PROP(Paging, KeysLieWhereTheTableSays, ()) {
  const i64 page_size = between(1, 5), num_pages = between(1, 9), max_pages = between(0, 4);
  const bool packed = *rc::gen::arbitrary<bool>(), new_keys = *rc::gen::arbitrary<bool>();
  const i32 first = between(0, 5), total = first + between(0, 5);
  const std::vector<i32> cu_q = {0, first, total};
  ExampleProblem e = packed ? ExampleProblem::packed(cu_q, {0, 0, 0}) : ExampleProblem(2, between(0, 5), 0);
  e.problem.cu_seqlens_kv.rank = 0;
  e.page(num_pages, page_size);
  std::vector<i32> used(2), table;
  for (i32& keys : used) keys = between(0, static_cast<i32>(max_pages * page_size));
  // Entries behind the last page may be anything.
  for (i64 b = 0; b < 2; ++b)
    for (i64 n = 0; n < max_pages; ++n)
      table.push_back(n * page_size < used[static_cast<std::size_t>(b)] ? between(0, static_cast<i32>(num_pages) - 1)
                                                                        : between(-99, 99));
  e.problem.block_table = e.arena.int32({2, max_pages}, table);
  e.problem.seqused_kv = e.arena.int32(used);
  if (new_keys) {
    const isoflash_tensor& q = e.problem.q;
    const auto rows = [&](i64 dim) {
      return packed ? e.arena.tensor(ISOFLASH_F32, {q.shape[0], 2, dim})
                    : e.arena.tensor(ISOFLASH_F32, {q.shape[0], q.shape[1], 2, dim});
    };
    e.problem.k_new = rows(8), e.problem.v_new = rows(4);
  }
  const auto valid = validate_problem(e.problem);
  RC_ASSERT(valid.has_value());
  RC_ASSERT(valid->problem.kv_layout == KvLayout::paged);
  RC_ASSERT(valid->problem.num_pages == num_pages);
  RC_ASSERT(valid->problem.rows_kv == page_size);
  RC_ASSERT(valid->problem.new_keys == new_keys);
  for (std::size_t b = 0; b < 2; ++b) {
    const Sequence& s = valid->sequences[b];
    RC_ASSERT(s.seqlen_cached == used[b]);
    RC_ASSERT(s.seqlen_kv == used[b] + (new_keys ? s.seqlen_q : 0));
    RC_ASSERT(s.slot_kv >= s.seqlen_kv);
    RC_ASSERT(s.mask.seqlen_kv == s.seqlen_kv);
    for (i32 j = 0; j < s.seqlen_kv; ++j) {
      const KvPlace got = kv_place(s, j);
      const KvPlace want = defined_place(e, table, max_pages, page_size, static_cast<i64>(b), j, used[b], cu_q);
      RC_ASSERT(got.is_new == want.is_new);
      RC_ASSERT(got.batch == want.batch);
      RC_ASSERT(got.row == want.row);
    }
  }
}

// Keys of a dense or packed cache, followed by the queries' own; the mask counts both.
TEST(NewKeys, FollowTheCache) {
  ExampleProblem e(2, 3, 10);
  e.problem.seqused_kv = e.arena.int32({4, 10});
  e.problem.seqused_q = e.arena.int32({3, 2});
  e.problem.k_new = e.arena.tensor(ISOFLASH_F32, {2, 3, 2, 8});
  e.problem.v_new = e.arena.tensor(ISOFLASH_F32, {2, 3, 2, 4});
  e.problem.mask.num_candidates.values = e.arena.int32({3, 2});
  const auto valid = validate_problem(e.problem);
  ASSERT_TRUE(valid) << valid.error().message();
  const Sequence &first = valid->sequences[0], &second = valid->sequences[1];
  EXPECT_EQ(first.seqlen_kv, 7);
  EXPECT_EQ(second.seqlen_kv, 12);
  EXPECT_EQ(first.mask.query_offset, 4) << "queries stand at their own keys";
  EXPECT_EQ(first.mask.candidate_begin, 4);
  EXPECT_EQ(second.mask.candidate_begin, 10);
  const KvPlace cached = kv_place(first, 3), own = kv_place(first, 4);
  EXPECT_FALSE(cached.is_new);
  EXPECT_EQ(cached.row, 3);
  EXPECT_TRUE(own.is_new);
  EXPECT_EQ(own.row, 0);
}

TEST(NewKeys, MakeSequencesTooLongTogether) {
  ExampleProblem e(1, 2, 2);
  e.problem.k.shape[1] = e.problem.v.shape[1] = kMaxSeqlen - 2;
  e.problem.k.strides[1] = e.problem.v.strides[1] = 0;
  e.problem.k_new = e.arena.tensor(ISOFLASH_F32, {1, 2, 2, 8});
  e.problem.v_new = e.arena.tensor(ISOFLASH_F32, {1, 2, 2, 4});
  const auto valid = validate_problem(e.problem);
  ASSERT_FALSE(valid);
  EXPECT_EQ(valid.error().id(), errors::SeqlenTooLong::kId);
  EXPECT_NE(valid.error().message().find("new keys included"), std::string::npos) << valid.error().message();
}

TEST(Paging, EveryExtentOfTheTableMayBeZero) {
  ExampleProblem no_pages(2, 3, 0);
  no_pages.page(0, 4);
  no_pages.problem.block_table = no_pages.arena.tensor(ISOFLASH_I32, {2, 0});
  no_pages.problem.seqused_kv = no_pages.arena.int32({0, 0});
  const auto valid = validate_problem(no_pages.problem);
  ASSERT_TRUE(valid) << valid.error().message();
  EXPECT_NE(valid->sequences[0].block_table, nullptr);
  ExampleProblem no_batch(0, 3, 0);
  no_batch.page(3, 4);
  no_batch.problem.block_table = no_batch.arena.tensor(ISOFLASH_I32, {0, 7});
  no_batch.problem.seqused_kv = no_batch.arena.tensor(ISOFLASH_I32, {0});
  EXPECT_TRUE(validate_problem(no_batch.problem));
}

}  // namespace
}  // namespace iso
