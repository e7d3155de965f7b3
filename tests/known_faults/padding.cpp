// Known faults: NaN or garbage in padding, unused cache slots and unwritten outputs.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R22_nan_past_the_used_length_reaches_the_output) {
  Attention a(ISOFLASH_F16, {.batch = 2, .seqlen_q = 1, .seqlen_kv = 3, .head_dim = 64});
  a.use_rows({}, {1, 3});
  a.q.fill(0.5), a.dout.fill(1.0);
  for (int64_t b = 0; b < 2; ++b)  // slots past the length keep the buffer's NaN
    for (int64_t j = 0; j < a.length_kv[b]; ++j)
      for (int64_t d = 0; d < 64; ++d) a.k.set({b, j, 0, d}, 0.5), a.v.set({b, j, 0, d}, 1.0);
  a.run();
  expect_right(a);
  EXPECT_EQ(a.out_of(0, 0, 0, 0), 1.0);
  EXPECT_EQ(a.out_of(1, 0, 0, 63), 1.0);
}

TEST(KnownFaults, R23_zero_times_nan_in_p_times_v) {
  const auto make = [](Attention& a, double filler) {
    a.use_rows({}, {32, 64, 96, 48});
    a.fill_noise();
    for (int64_t b = 0; b < 4; ++b)
      for (int64_t j = a.length_kv[b]; j < 128; ++j)
        for (int64_t h = 0; h < 8; ++h)
          for (int64_t d = 0; d < 64; ++d) a.k.set({b, j, h, d}, filler), a.v.set({b, j, h, d}, filler);
    a.run();
  };
  const Sizes sizes{.batch = 4, .seqlen_q = 3, .seqlen_kv = 128, .num_heads_q = 8, .num_heads_kv = 8, .head_dim = 64};
  Attention zero(ISOFLASH_BF16, sizes);
  make(zero, 0.0);
  expect_right(zero);
  for (const double filler : {kNan, kInf, -kInf}) {
    SCOPED_TRACE(filler);
    Attention a(ISOFLASH_BF16, sizes);
    make(a, filler);
    expect_same_bits(a, zero);
  }
}

// What structure hides (length, padding, isolation) must not be read, whatever it holds.
TEST(KnownFaults, R25_nan_in_a_hidden_key_poisons_the_row) {
  const auto padded = [](Attention& a) {
    a.session(1, 60, 5);
    a.mask().history_begin.value = 7;
    a.mask().history_end.value = 50;
    a.visible = [](int64_t, int64_t i, int64_t j) {
      const auto padding = [](int64_t p) { return (p >= 1 && p < 7) || (p >= 50 && p < 61); };
      return !padding(i) && !padding(j) && (j < 61 || j == i);
    };
    a.fill_noise();
  };
  const Sizes sizes{.seqlen_q = 66, .seqlen_kv = 66, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 4};
  const auto spoil = [](Attention& a, int64_t j) {
    for (int64_t d = 0; d < 4; ++d) a.k.set({0, j, 0, d}, kNan), a.v.set({0, j, 0, d}, kNan);
  };
  Attention clean(ISOFLASH_F32, sizes);
  padded(clean);
  clean.run();
  expect_right(clean);
  Attention padding(ISOFLASH_F32, sizes);
  padded(padding);
  for (int64_t j = 1; j < 61; ++j)
    if (j < 7 || j >= 50) spoil(padding, j);
  padding.run();
  expect_same_bits(padding, clean);
  Attention candidate(ISOFLASH_F32, sizes);
  padded(candidate);
  spoil(candidate, 63);
  candidate.run();
  for (int64_t i = 0; i < 66; ++i) {
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(std::isnan(candidate.lse_of(0, h, i)), i == 63) << "row " << i;
      for (int64_t d = 0; d < 4 && i != 63; ++d) {
        EXPECT_EQ(candidate.out_of(0, i, h, d), clean.out_of(0, i, h, d)) << "NaN of candidate 63 reached row " << i;
        EXPECT_EQ(candidate.dq.get({0, i, h, d}), clean.dq.get({0, i, h, d}))
            << "NaN of candidate 63 reached dq of row " << i;
      }
    }
  }
}

TEST(KnownFaults, R28_scratch_rows_past_the_query_length) {
  const std::vector<int32_t> lengths{1, 63, 65, 127};
  Attention a(ISOFLASH_BF16, lengths, lengths, {.num_heads_q = 8, .num_heads_kv = 2, .head_dim = 64});
  a.fill_noise();
  for (int repeat = 0; repeat < 3; ++repeat) {
    a.run();  // the workspace is poisoned anew
    expect_right(a);
  }
}

TEST(KnownFaults, R29_padding_between_sequences_is_exactly_zero) {
  // Slots of 4, 8 and 4 rows of which 3, 5 and 0 are in use.
  Attention a(ISOFLASH_BF16, {4, 8, 4}, {4, 8, 4}, {.num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
  a.use_rows({3, 5, 0}, {3, 5, 0});
  a.fill_noise();
  a.run();
  expect_right(a);
  for (int64_t row : {3, 9, 10, 11, 12, 13, 14, 15})
    for (const Buffer* x : {&a.out, &a.dq, &a.dk, &a.dv}) EXPECT_EQ(x->get({row, 0, 7}), 0.0) << "row " << row;
}

TEST(KnownFaults, R32_stale_data_of_an_earlier_longer_call) {
  Attention longer(ISOFLASH_F32, {.seqlen_q = 700, .seqlen_kv = 700, .num_heads_q = 3, .num_heads_kv = 3, .head_dim = 32});
  longer.fill_noise(9, 3.0);
  Attention first(ISOFLASH_F32, {.seqlen_q = 509, .seqlen_kv = 509, .num_heads_q = 3, .num_heads_kv = 3, .head_dim = 32});
  first.fill_noise();
  first.run();
  expect_right(first);
  for (int repeat = 0; repeat < 9; ++repeat) {
    longer.run();
    Attention again(ISOFLASH_F32, first.sizes);
    again.fill_noise();
    again.run();
    expect_same_bits(again, first);
  }
}

}  // namespace
}  // namespace iso::known_faults
