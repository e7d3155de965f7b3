// Known faults: paged keys and values, and keys cut into parts. Pages and rows of pages that nobody uses hold NaN.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

// Pages of each sequence one after the other, from the last page of the pool down.
std::vector<std::vector<int32_t>> descending_pages(const std::vector<int32_t>& lengths, int64_t page_size, int64_t& total) {
  total = 2;  // two that belong to nobody
  for (const int32_t length : lengths) total += (length + page_size - 1) / page_size;
  std::vector<std::vector<int32_t>> table;
  int32_t next = static_cast<int32_t>(total) - 1;
  for (const int32_t length : lengths) {
    table.emplace_back();
    for (int64_t n = 0; n < (length + page_size - 1) / page_size; ++n) table.back().push_back(next--);
  }
  return table;
}

void use_pages(Attention& a, int64_t page_size, const std::vector<int32_t>& lengths) {
  int64_t total = 0;
  const auto table = descending_pages(lengths, page_size, total);
  a.use_pages(page_size, total, lengths, table);
  a.fill_pages();
}

TEST(KnownFaults, R08_lse_of_an_empty_row_with_pages) {
  Attention a(ISOFLASH_BF16, {.batch = 2, .seqlen_q = 5, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 64});
  a.fill_noise();
  use_pages(a, 16, {3, 20});
  a.causal();
  a.run();
  expect_right(a);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(a.lse_of(0, 1, i) == -kInf, i < 2) << "row " << i;
}

// The table ends with the last page of the longest sequence, and what follows the pages of a shorter one is no page.
TEST(KnownFaults, R121_last_partial_tile_reads_past_the_pages) {
  Attention a(ISOFLASH_F32, {.batch = 2, .seqlen_q = 20, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 32});
  a.fill_noise();
  a.use_pages(16, 4, {17, 3}, {{1, 2}, {3}});
  a.fill_pages();
  a.run();
  expect_right(a);
}
TEST(KnownFaults, R122_look_ahead_reads_one_page_too_many) {
  for (const int32_t length : {16, 32, 64, 128, 129}) {
    Attention a(ISOFLASH_BF16, {30}, {length}, {.num_heads_q = 2, .num_heads_kv = 1, .head_dim = 64});
    a.fill_noise();
    use_pages(a, 16, {length});
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R124_any_page_size) {
  for (const int64_t page_size : {1, 2, 5, 16, 48, 256, 512}) {
    SCOPED_TRACE("pages of " + std::to_string(page_size));
    Attention a(ISOFLASH_BF16, {.batch = 3, .seqlen_q = 9, .num_heads_q = 4, .num_heads_kv = 2, .head_dim = 32});
    a.fill_noise();
    use_pages(a, page_size, {257, 48, 1});
    a.run();
    expect_right(a);
  }
}
TEST(KnownFaults, R124_lengths_that_the_pages_do_not_hold) {
  const struct {
    std::vector<int32_t> lengths;
    const char* error;
  } wrong[] = {{{33, 5}, "SEQUSED_BEYOND_PAGES"}, {{-1, 5}, "SEQUSED_BEYOND_PAGES"}, {{32, 17}, "PAGE_ID_RANGE"}};
  for (const auto& [lengths, error] : wrong) {
    Attention a(ISOFLASH_F32, {.batch = 2, .seqlen_q = 4});
    a.use_pages(16, 3, lengths, {{0, 1}, {2}});  // the second sequence has one page
    EXPECT_EQ(a.refusal().name, error) << lengths[0] << ", " << lengths[1];
  }
}

TEST(KnownFaults, R125_sequence_shorter_than_a_page) {
  Attention a(ISOFLASH_F32, {.batch = 2, .seqlen_q = 1, .head_dim = 16});
  a.q.fill(0.5);
  a.use_pages(2, 3, {1, 1}, {{2}, {0}});
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t d = 0; d < 16; ++d)
      a.k.set(a.kv_row(b, 0, 0, d), 0.25), a.v.set(a.kv_row(b, 0, 0, d), static_cast<double>(d + 1));
  a.run();
  expect_right(a);
  for (int64_t d = 0; d < 16; ++d)
    for (int64_t b = 0; b < 2; ++b) EXPECT_EQ(a.out_of(b, 0, 0, d), static_cast<double>(d + 1)) << "sequence " << b;
}

// Each sequence gets its own parts merged, not those of sequence 0.
TEST(KnownFaults, R127_merged_parts_of_packed_sequences) {
  const auto make = [](int num_splits) {
    auto a = std::make_unique<Attention>(ISOFLASH_BF16, std::vector<int32_t>{2, 2, 2}, std::vector<int32_t>{0, 0, 0},
                                         Sizes{.num_heads_q = 4, .num_heads_kv = 2, .head_dim = 32});
    a->fill_noise();
    use_pages(*a, 16, {5000, 4000, 6000});
    a->num_splits = num_splits;
    a->run();
    return a;
  };
  for (const int num_splits : {1, 4}) expect_right(*make(num_splits));
}

TEST(KnownFaults, R46_merging_parts_in_any_layout) {
  for (const int64_t rows : {1, 3, 8}) {
    for (const bool heads_first : {false, true}) {
      Attention a(ISOFLASH_BF16,
                  {.batch = 2, .seqlen_q = rows, .seqlen_kv = 1024, .num_heads_q = 4, .num_heads_kv = 4, .head_dim = 32});
      if (heads_first) a.out = Buffer(ISOFLASH_BF16, {2, rows, 4, 32}, {rows * 128, 32, rows * 32, 1});
      a.fill_noise();
      a.num_splits = 7;
      a.run();
      expect_right(a);
    }
  }
}

TEST(KnownFaults, R167_workspace_of_many_tiny_sequences) {
  Attention a(ISOFLASH_F32, std::vector<int32_t>(4096, 1), std::vector<int32_t>(4096, 1),
              {.num_heads_q = 8, .num_heads_kv = 8, .head_dim = 64});
  a.describe();
  PlanHandle plan;
  ASSERT_EQ(plan_refusal(a.problem, &plan).id, 0);
  EXPECT_LE(isoflash_forward_workspace_size(plan.get()), a.out.bytes().size()) << "more scratch than output";
}

}  // namespace
}  // namespace iso::known_faults
