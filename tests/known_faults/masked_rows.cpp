// Known faults: rows and tiles with no visible key.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R01_fully_masked_rows_give_nan) {
  for (isoflash_dtype dtype : {ISOFLASH_F32, ISOFLASH_BF16}) {
    Attention a(dtype, {.seqlen_q = 8, .seqlen_kv = 8, .head_dim = 8});
    a.mask().history_end.value = 4;
    a.visible = [](int64_t, int64_t i, int64_t j) { return i < 4 && j < 4; };
    a.fill_noise();
    a.dout.fill(1.0);
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R02_first_tile_masked_while_the_row_is_not_empty) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 640, .seqlen_kv = 640, .head_dim = 4});
  a.window(9, 0);
  a.fill_noise();
  a.run();
  expect_right(a);
  a.q.fill(0.0);  // equal scores: the mean of the visible rows of V
  a.run();
  for (int64_t i = 9; i < 640; ++i) {
    double mean = 0;
    for (int64_t j = i - 9; j <= i; ++j) mean += a.v.get({0, j, 0, 1}) / 10;
    ASSERT_NEAR(a.out_of(0, i, 0, 1), mean, 1e-6) << "row " << i;
  }
}

TEST(KnownFaults, R04_running_max_reset_after_a_masked_tile) {
  Attention a(ISOFLASH_BF16, {.seqlen_q = 88, .seqlen_kv = 448, .num_heads_q = 14, .num_heads_kv = 2, .head_dim = 64});
  a.problem.scale = 0.125;
  a.causal();
  a.q.fill(4.0), a.k.fill(-4.0), a.v.fill_noise(3), a.dout.fill_noise(4);
  a.run();
  expect_right(a);
  for (int64_t i = 0; i < 88; ++i)
    EXPECT_NEAR(a.lse_of(0, 13, i), -128 + std::log(i + 361.0), 1e-4) << "row " << i << ": every logit is -128";
}

TEST(KnownFaults, R05_fully_masked_rows_at_any_place_in_the_block) {
  struct Place {
    int64_t context, begin;  // rows [context, begin) are padding
  };
  for (const Place place : {Place{0, 14}, Place{25, 39}, Place{50, 64}}) {
    SCOPED_TRACE("padding rows from " + std::to_string(place.context));
    Attention a(ISOFLASH_F32, {.seqlen_q = 64, .seqlen_kv = 256, .head_dim = 128});
    a.mask().num_context.value = place.context;
    a.mask().history_begin.value = place.begin;
    a.mask().query_offset.value = 0;
    a.visible = [place](int64_t, int64_t i, int64_t j) {
      const auto padding = [place](int64_t p) { return p >= place.context && p < place.begin; };
      return !padding(i) && !padding(j);
    };
    a.fill_noise();
    a.run();
    expect_right(a);
    // What an empty row holds, NaN included, must not change one bit of the rest.
    Attention b(ISOFLASH_F32, a.sizes);
    b.problem.mask = a.problem.mask, b.visible = a.visible;
    b.fill_noise();
    for (int64_t i = place.context; i < place.begin; ++i)
      for (int64_t d = 0; d < 128; ++d)
        for (Buffer* x : {&b.q, &b.k, &b.v, &b.dout}) x->set({0, i, 0, d}, kNan);
    b.run();
    expect_same_bits(a, b);
  }
}

TEST(KnownFaults, R07_causal_with_more_queries_than_keys) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 6, .seqlen_kv = 4, .head_dim = 16});
  a.causal();
  a.fill_noise();
  a.q.fill(0.0);
  a.v.fill([](Index i) { return i[1] == i[3] ? 1.0 : 0.0; });  // one-hot: out shows the weights
  a.run();
  expect_right(a);
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 4; ++j)
      EXPECT_FLOAT_EQ(a.out_of(0, i, 0, j), j <= i - 2 ? 1.0 / (i - 1) : 0.0) << "weight of key " << j << " in row " << i;
  }
  EXPECT_EQ(a.lse_of(0, 0, 0), -kInf);
  EXPECT_EQ(a.lse_of(0, 0, 1), -kInf);
}

TEST(KnownFaults, R08_lse_of_an_empty_row_is_minus_infinity) {
  Attention a(ISOFLASH_BF16, {.batch = 3, .seqlen_q = 5, .seqlen_kv = 3, .head_dim = 64});
  a.causal();
  a.fill_noise();
  a.run();
  expect_right(a);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(std::isinf(a.lse_of(2, 0, i)), i < 2) << "row " << i;
}

// The keys are sharded and each shard attended alone; merging by lse must give the unsharded result, with ranks that hold
// no visible key for some rows and with one that holds no key at all.
TEST(KnownFaults, R11_empty_key_sets_merge_by_lse) {
  const int64_t rows = 64, dim = 16;
  Attention whole(ISOFLASH_F32, {.seqlen_q = rows, .seqlen_kv = rows, .head_dim = dim});
  whole.causal();
  whole.fill_noise();
  whole.run();
  std::vector<double> sum(rows, 0.0), merged(rows * dim, 0.0);
  for (const auto& [begin, end] : {std::pair{0, 16}, {16, 40}, {40, 40}, {40, 64}}) {
    Attention shard(ISOFLASH_F32, {.seqlen_q = rows, .seqlen_kv = end - begin, .head_dim = dim});
    shard.causal();
    shard.mask().query_offset.value = -begin;
    shard.visible = [begin = begin](int64_t, int64_t i, int64_t j) { return j <= i - begin; };
    shard.fill_noise();
    for (int64_t j = begin; j < end; ++j)
      for (int64_t d = 0; d < dim; ++d)
        shard.k.set({0, j - begin, 0, d}, whole.k.get({0, j, 0, d})),
            shard.v.set({0, j - begin, 0, d}, whole.v.get({0, j, 0, d}));
    shard.run();
    expect_right(shard);
    for (int64_t i = 0; i < rows; ++i) {
      const double weight = std::exp(shard.lse_of(0, 0, i) - whole.lse_of(0, 0, i));
      sum[i] += weight;
      for (int64_t d = 0; d < dim; ++d) merged[i * dim + d] += weight * shard.out_of(0, i, 0, d);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    EXPECT_NEAR(sum[i], 1.0, 1e-5) << "row " << i;
    for (int64_t d = 0; d < dim; ++d) EXPECT_NEAR(merged[i * dim + d], whole.out_of(0, i, 0, d), 1e-5) << "row " << i;
  }
}

}  // namespace
}  // namespace iso::known_faults
