// Known faults: row intervals and block lists.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

// Lists shared by batch and heads, from rows of key blocks; index 0, 1, 2: mask, full, diag.
using Rows = std::vector<std::vector<int32_t>>;

isoflash_block_list shared_list(Attention& a, const Rows& rows) {
  size_t width = 1;
  for (const auto& row : rows) width = std::max(width, row.size());
  std::vector<int32_t> counts, indices;
  for (const auto& row : rows) {
    counts.push_back(static_cast<int32_t>(row.size()));
    indices.insert(indices.end(), row.begin(), row.end());
    indices.resize(counts.size() * width, 1 << 30);  // never read
  }
  const int64_t blocks = static_cast<int64_t>(rows.size());
  return {a.int_array({1, 1, blocks}, counts), a.int_array({1, 1, blocks, static_cast<int64_t>(width)}, indices)};
}

Rows transposed(const Rows& rows, int64_t other_blocks) {
  Rows out(other_blocks);
  for (size_t m = 0; m < rows.size(); ++m)
    for (const int32_t n : rows[m]) out[n].push_back(static_cast<int32_t>(m));
  return out;
}

void use_full_blocks(Attention& a, int64_t block, const Rows& rows) {
  a.problem.blocks.block_m = a.problem.blocks.block_n = block;
  a.problem.blocks.forward.full = shared_list(a, rows);
  a.visible = [=](int64_t, int64_t i, int64_t j) {
    const auto& row = rows[i / block];
    return std::find(row.begin(), row.end(), j / block) != row.end();
  };
}

// A validity mask whose valid keys are not one prefix: exactly those keys are used.
TEST(KnownFaults, R47_padding_mask_with_holes) {
  for (isoflash_dtype dtype : {ISOFLASH_F32, ISOFLASH_BF16}) {
    Attention a(dtype, {.seqlen_q = 5, .seqlen_kv = 8, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
    a.fill_noise();
    const std::vector<bool> valid = {true, true, false, true, false, true, true, false};
    std::vector<int32_t> rows;
    for (int i = 0; i < 5; ++i) rows.insert(rows.end(), {0, 2, 3, 4, 5, 7});
    a.problem.row_intervals = a.int_array({1, 1, 5, 6}, rows);
    a.visible = [=](int64_t, int64_t, int64_t j) { return valid[j]; };
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R47_lists_out_of_order_are_refused_by_name) {
  const struct {
    std::vector<int32_t> row;
    const char* error;
  } wrong[] = {{{3, 5, 0, 2}, "ROW_INTERVAL_ORDER"},
               {{0, 4, 3, 5}, "ROW_INTERVAL_ORDER"},
               {{4, 2, 5, 6}, "ROW_INTERVAL_REVERSED"},
               {{0, 2, 5, 9}, "ROW_INTERVAL_RANGE"}};
  for (const auto& [row, error] : wrong) {
    Attention a(ISOFLASH_F32, {.seqlen_q = 1, .seqlen_kv = 8});
    a.problem.row_intervals = a.int_array({1, 1, 1, 4}, row);
    EXPECT_EQ(a.refusal().name, error);
  }
}

// Row blocks of 1, 2 and 3 rows on column blocks of 3, 1 and 2: as row intervals, any block sizes go.
TEST(KnownFaults, R80_ragged_blocks_on_tiny_sizes) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 6, .seqlen_kv = 6, .head_dim = 128});
  a.fill_noise();
  const int block_of_row[] = {0, 1, 1, 2, 2, 2}, block_of_key[] = {0, 0, 0, 1, 2, 2};
  const bool mask[3][3] = {{false, false, true}, {true, false, true}, {false, true, true}};
  const int32_t intervals[3][4] = {{4, 6, 6, 6}, {0, 3, 4, 6}, {3, 6, 6, 6}};
  std::vector<int32_t> rows;
  for (int i = 0; i < 6; ++i) rows.insert(rows.end(), intervals[block_of_row[i]], intervals[block_of_row[i]] + 4);
  a.problem.row_intervals = a.int_array({1, 1, 6, 4}, rows);
  a.visible = [&](int64_t, int64_t i, int64_t j) { return mask[block_of_row[i]][block_of_key[j]]; };
  a.run();
  expect_right(a);
}

// Lists that equal the causal mask give the gradients of the causal mask.
TEST(KnownFaults, R109_block_lists_that_equal_causal) {
  for (const int64_t dim : {32, 64, 96, 128}) {
    for (const int64_t block : {64, 128}) {
      for (const bool both_forms : {false, true}) {
        SCOPED_TRACE("head_dim " + std::to_string(dim) + ", blocks of " + std::to_string(block));
        const Sizes sizes{.seqlen_q = 300, .seqlen_kv = 300, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = dim};
        Attention a(ISOFLASH_BF16, sizes), causal(ISOFLASH_BF16, sizes);
        for (Attention* x : {&a, &causal}) x->causal(), x->fill_noise();
        Rows full, mask;
        const int64_t blocks = (300 + block - 1) / block;
        for (int32_t m = 0; m < blocks; ++m) {
          full.emplace_back(), mask.push_back({m});
          for (int32_t n = 0; n < m; ++n) full.back().push_back(n);
        }
        auto& lists = a.problem.blocks;
        lists.block_m = lists.block_n = block;
        lists.forward.full = shared_list(a, full), lists.forward.mask = shared_list(a, mask);
        if (both_forms) {
          lists.backward.full = shared_list(a, transposed(full, blocks));
          lists.backward.mask = shared_list(a, transposed(mask, blocks));
        }
        a.run(), causal.run();
        expect_right(a);
        expect_right(causal);
      }
    }
  }
}

// No mask beside the lists: they still decide, and `full` does not spill over the lengths.
TEST(KnownFaults, R115_lists_ignored_without_a_mask) {
  for (const int64_t block : {64, 256}) {
    Attention a(ISOFLASH_F32, {.seqlen_q = 4 * block - 3, .seqlen_kv = 4 * block - 7, .head_dim = 16});
    a.fill_noise();
    use_full_blocks(a, block, {{0, 2}, {1, 3}, {0, 3}, {2, 3}});
    a.run();
    expect_right(a);
  }
}

// Lists made for another length are refused, never cut or stretched.
void expect_refused(int64_t made_for, int64_t used_with) {
  Attention a(ISOFLASH_F32, {.seqlen_q = used_with, .seqlen_kv = used_with});
  Rows rows(made_for / 64);
  for (size_t m = 0; m < rows.size(); ++m) rows[m] = {static_cast<int32_t>(m)};
  use_full_blocks(a, 64, rows);
  EXPECT_EQ(a.refusal().name, "BLOCK_LIST_SHAPE") << "lists for " << made_for << " rows used with " << used_with;
}
TEST(KnownFaults, R116_block_lists_of_another_length) {
  expect_refused(1024, 512);
  expect_refused(512, 1024);
  Attention a(ISOFLASH_F32, {.seqlen_q = 500, .seqlen_kv = 500, .head_dim = 16});  // the 8 blocks of 512 fit 500 too
  a.fill_noise();
  use_full_blocks(a, 64, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}});
  a.run();
  expect_right(a);
  Attention keys(ISOFLASH_F32, {.seqlen_q = 64, .seqlen_kv = 128});
  use_full_blocks(keys, 64, {{0, 2}});
  const Refusal refusal = keys.refusal();
  EXPECT_EQ(refusal.name, "BLOCK_INDEX_RANGE");
  EXPECT_NE(refusal.message.find("2"), std::string::npos) << refusal.message;
}
TEST(KnownFaults, R107_oversized_lists_with_a_gradient_of_lse) {
  expect_refused(4096, 3968);
  Attention a(ISOFLASH_F32, {.seqlen_q = 200, .seqlen_kv = 200, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
  a.fill_noise();
  use_full_blocks(a, 64, {{0, 1}, {}, {0, 3}, {2}});
  a.dlse = Buffer(ISOFLASH_F32, a.lse.shape());
  a.dlse.fill_noise(8);
  a.run();
  expect_right(a);
}

TEST(KnownFaults, R118_new_lists_after_unused_ones) {
  Attention unused(ISOFLASH_F32, {.seqlen_q = 712, .seqlen_kv = 712, .head_dim = 16});
  use_full_blocks(unused, 64, Rows(12, {0, 5, 11}));
  EXPECT_EQ(unused.refusal().id, 0);
  Attention a(ISOFLASH_F32, {.seqlen_q = 1478, .seqlen_kv = 1478, .head_dim = 16});
  a.fill_noise();
  use_full_blocks(a, 64, Rows(24, {1, 7, 23}));
  a.run();
  expect_right(a);
}

// Query blocks that hold nothing, wherever they are, are rows that see nothing; and so for all of them.
TEST(KnownFaults, R119_rows_of_blocks_without_a_block) {
  for (const Rows& rows : {Rows{{}, {0, 2}, {1}, {0}}, {{0}, {}, {1, 2}, {3}}, {{0}, {1}, {3}, {}}, {{}, {}, {}, {}}}) {
    Attention a(ISOFLASH_BF16,
                {.batch = 2, .seqlen_q = 230, .seqlen_kv = 230, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 32});
    a.fill_noise();
    use_full_blocks(a, 64, rows);
    a.run();
    expect_right(a);
  }
}
TEST(KnownFaults, R119_forms_that_disagree_are_refused) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 128, .seqlen_kv = 128});
  use_full_blocks(a, 64, {{0}, {0, 1}});
  a.problem.blocks.backward.full = shared_list(a, {{0, 1}, {}});
  EXPECT_EQ(a.refusal().name, "BLOCK_LISTS_NOT_TRANSPOSED");
}

TEST(KnownFaults, Unnumbered_duplicate_and_unsorted_blocks) {
  Attention twice(ISOFLASH_F32, {.seqlen_q = 64, .seqlen_kv = 300});
  use_full_blocks(twice, 64, {{3, 1, 3}});
  EXPECT_EQ(twice.refusal().name, "BLOCK_LISTED_TWICE");
  Attention both(ISOFLASH_F32, {.seqlen_q = 64, .seqlen_kv = 300});
  use_full_blocks(both, 64, {{3, 1}});
  both.problem.blocks.forward.mask = shared_list(both, {{1}});
  EXPECT_EQ(both.refusal().name, "BLOCK_IN_TWO_LISTS");
  Attention a(ISOFLASH_F32, {.seqlen_q = 64, .seqlen_kv = 300, .head_dim = 16}), sorted(ISOFLASH_F32, a.sizes);
  for (Attention* x : {&a, &sorted}) x->fill_noise();
  use_full_blocks(a, 64, {{4, 1, 3}});
  use_full_blocks(sorted, 64, {{1, 3, 4}});
  a.run(), sorted.run();
  expect_right(a);
  expect_same_bits(a, sorted);
}

}  // namespace
}  // namespace iso::known_faults
