// Known faults: causal and window conventions.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R82_window_larger_than_the_keys_loses_keys) {
  const Sizes sizes{.seqlen_q = 10, .seqlen_kv = 4, .head_dim = 8};
  Attention full(ISOFLASH_F32, sizes);
  full.fill_noise();
  full.run();
  for (const int64_t huge :
       {int64_t{1} << 20, (int64_t{1} << 31) - 1, int64_t{1} << 31, std::numeric_limits<int64_t>::max()}) {
    SCOPED_TRACE(huge);
    Attention a(ISOFLASH_F32, sizes);
    a.window(huge, huge);
    a.visible = full.visible;
    a.fill_noise();
    a.run();
    expect_right(a);
    expect_same_bits(a, full);
  }
}

TEST(KnownFaults, R83_window_that_equals_causal) {
  const int64_t seqlen = 300;
  const Sizes sizes{.seqlen_q = seqlen, .seqlen_kv = seqlen, .head_dim = 16};
  Attention causal(ISOFLASH_F32, sizes);
  causal.causal();
  causal.fill_noise();
  causal.run();
  expect_right(causal);
  for (const int64_t left : {int64_t{-1}, seqlen, seqlen - 1}) {
    Attention a(ISOFLASH_F32, sizes);
    a.window(left, 0);
    a.fill_noise();
    a.run();
    expect_same_bits(a, causal);
  }
  Attention shorter(ISOFLASH_F32, sizes);
  shorter.window(seqlen - 2, 0);
  shorter.fill_noise();
  shorter.run();
  expect_right(shorter);
  for (int64_t i = 0; i < seqlen; ++i)
    EXPECT_EQ(shorter.lse_of(0, 0, i) != causal.lse_of(0, 0, i), i == seqlen - 1)
        << "row " << i << "; only the last loses key 0";
}

TEST(KnownFaults, R85_negative_window_is_not_unlimited) {
  for (const auto& [left, right] : {std::pair{-2, 4}, {5, -3}, {-3, -3}}) {
    Attention a(ISOFLASH_F32, {.seqlen_q = 8, .seqlen_kv = 8});
    a.window(left, right);
    const Refusal refusal = a.refusal();
    EXPECT_EQ(refusal.name, "NEGATIVE_WINDOW") << "window (" << left << ", " << right << "): " << refusal.message;
  }
  Attention unlimited(ISOFLASH_F32, {.seqlen_q = 8, .seqlen_kv = 8});
  unlimited.window(ISOFLASH_UNLIMITED, ISOFLASH_UNLIMITED);
  unlimited.fill_noise();
  unlimited.run();
  expect_right(unlimited);
}

TEST(KnownFaults, R86_window_is_a_distance) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 6, .seqlen_kv = 6, .head_dim = 6});
  a.window(2, 0);
  a.fill_noise();
  a.q.fill(0.0);
  a.v.fill([](Index i) { return i[1] == i[3] ? 1.0 : 0.0; });
  a.run();
  expect_right(a);
  for (int64_t j = 0; j < 6; ++j)
    EXPECT_FLOAT_EQ(a.out_of(0, 5, 0, j), j >= 3 ? 1.0 / 3 : 0.0) << "left = 2 lets row 5 see keys 3, 4 and 5; key " << j;
}

}  // namespace
}  // namespace iso::known_faults
