// Known faults: precision of 16-bit results.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R163_denominator_and_numerator_use_different_p) {
  for (const int64_t seqlen_kv : {512, 2048, 8192}) {
    SCOPED_TRACE("keys " + std::to_string(seqlen_kv));
    Attention a(ISOFLASH_BF16,
                {.seqlen_q = 64, .seqlen_kv = seqlen_kv, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 64});
    a.fill_noise(1, 2.0);
    a.v.fill(1.0);
    a.run();
    double bias = 0;
    const std::vector<double> out = values_of(a.out);
    for (double x : out) {
      bias += (x - 1) / static_cast<double>(out.size());
      ASSERT_LE(std::abs(x - 1), 0x1p-7) << "more than one unit in the last place of bfloat16";
    }
    EXPECT_LT(std::abs(bias), 1e-3) << "the weights of a row must sum to 1 without a systematic error";
  }
}

TEST(KnownFaults, R164_bf16_gradients_of_structured_data) {
  for (const int64_t seqlen : {16, 64}) {
    for (const int64_t head_dim : {64, 128}) {
      SCOPED_TRACE(std::to_string(seqlen) + " rows, head_dim " + std::to_string(head_dim));
      Attention a(ISOFLASH_BF16,
                  {.seqlen_q = seqlen, .seqlen_kv = seqlen, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = head_dim});
      a.causal();
      a.q.fill_noise(1, 0.3, 10.0), a.k.fill_noise(2, 0.3, 10.0);  // a large common mean
      a.v.fill_noise(3), a.dout.fill_noise(4, 0.02, 1.0);          // nearly constant: rowsum(dO∘O) cancels
      a.run();
      expect_right(a);
    }
  }
}

TEST(KnownFaults, R166_scores_rounded_to_16_bits_in_the_backward) {
  Attention a(ISOFLASH_BF16, {.seqlen_q = 48, .seqlen_kv = 48, .head_dim = 64});
  // Scores of 60 to 80 in steps of 0.1 to 0.2: bfloat16 would keep steps of 0.5.
  a.fill_noise();
  a.q.fill([](Index i) { return i[3] == 0 ? 8.0 : i[3] == 1 ? 1.0 : 0.0; });
  a.k.fill([](Index i) {
    return i[3] == 0 ? 60.0 + static_cast<double>(i[1] % 20) : i[3] == 1 ? 0.1 * static_cast<double>(i[1]) : 0.0;
  });
  a.run();
  expect_right(a);
}

}  // namespace
}  // namespace iso::known_faults
