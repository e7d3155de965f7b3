// Known faults: extreme logits, mask constants, non-finite inputs.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R13_finite_mask_constant_lets_a_masked_key_win) {
  enum Hidden { by_length, by_padding, by_causality };
  for (const Hidden hidden : {by_length, by_padding, by_causality}) {
    SCOPED_TRACE(hidden);
    Attention a(ISOFLASH_F32, {.seqlen_q = 1, .seqlen_kv = 2, .head_dim = 1});
    a.problem.scale = 1.0;
    if (hidden == by_length) a.use_rows({}, {1});
    if (hidden != by_length) a.mask().query_offset.value = 0;
    if (hidden == by_padding) a.mask().history_end.value = 1;
    if (hidden == by_causality) a.mask().history_kind = ISOFLASH_HISTORY_CAUSAL;
    a.visible = [](int64_t, int64_t, int64_t j) { return j == 0; };
    a.q.fill(-20000.0), a.dout.fill(1.0);
    a.k.set({0, 0}, 1.0), a.k.set({0, 1}, 0.0);
    a.v.set({0, 0}, 1.0), a.v.set({0, 1}, 100.0);
    a.run();
    expect_right(a);
    EXPECT_EQ(a.out.get({}), 1.0) << "the masked key's probability must be exactly 0";
    EXPECT_EQ(a.lse.get({}), -20000.0);
    EXPECT_EQ(a.dv.get({0, 1}), 0.0);
  }
}

TEST(KnownFaults, R14_tail_keys_enter_exp_of_minus_lse) {
  for (isoflash_dtype dtype : {ISOFLASH_BF16, ISOFLASH_F16}) {
    for (int64_t seqlen : {64, 192, dtype == ISOFLASH_BF16 ? 1216 : 1000}) {
      SCOPED_TRACE("length " + std::to_string(seqlen));
      Attention a(dtype, {.seqlen_q = seqlen, .seqlen_kv = seqlen, .head_dim = 64});
      a.q.fill(3.53125), a.k.fill(-3.53125);  // every logit is -99.76
      a.v.fill_noise(1), a.dout.fill_noise(2);
      a.run();
      expect_right(a);
      const double logit = -8 * 3.53125 * 3.53125;
      EXPECT_NEAR(a.lse_of(0, 0, seqlen - 1), logit + std::log(static_cast<double>(seqlen)), 1e-4);
    }
  }
}

// Equal keys: weights of 1/50 whatever the logits, 8e6 for entries of 1000. Everything stays finite and the output is exact.
// The backward takes the weights from lse, whose float32 at 8e6 is a multiple of 0.5: docs/numerics.md states the bound.
TEST(KnownFaults, R16_large_constant_inputs_give_nan_gradients) {
  for (const double entry : {30.0, 1000.0}) {
    SCOPED_TRACE("entries of " + std::to_string(entry));
    Attention a(ISOFLASH_F32,
                {.batch = 4, .seqlen_q = 50, .seqlen_kv = 50, .num_heads_q = 16, .num_heads_kv = 16, .head_dim = 64});
    a.q.fill(entry), a.k.fill(entry);
    a.v.fill_noise(1), a.dout.fill_noise(2);
    a.run();
    const Values truth = reference(a);
    expect_near("out", a.out, truth.out, truth.out, a.dtype);
    const double lse = 8 * entry * entry, weight_error = std::exp2(lse * 1.4427 * 0x1p-23) - 1;
    const auto expect_within = [&](const char* name, const Buffer& buffer, const Result& right) {
      const std::vector<double> got = values_of(buffer);
      for (size_t n = 0; n < got.size(); ++n)
        ASSERT_NEAR(got[n], right.value[n], weight_error * std::abs(right.value[n]) + 1e-5 * right.magnitude)
            << name << ", element " << n;
    };
    expect_within("dv", a.dv, truth.dv);
    expect_within("dk", a.dk, truth.dk);
    expect_within("dq", a.dq, truth.dq);  // 0: all keys are equal
  }
}

TEST(KnownFaults, R17_float64_is_refused_by_name) {
  Attention a(ISOFLASH_F32, {.batch = 5, .seqlen_q = 6, .seqlen_kv = 7, .head_dim = 11});
  a.describe();
  for (isoflash_tensor* t : {&a.problem.q, &a.problem.k, &a.problem.v, &a.problem.out}) t->dtype = ISOFLASH_F64;
  const Refusal refusal = plan_refusal(a.problem);
  EXPECT_NE(refusal.id, 0) << "float64 must be refused, not computed in another type";
  EXPECT_NE(refusal.message.find("float64"), std::string::npos) << refusal.message;
}

TEST(KnownFaults, R20_nan_in_a_query_is_not_turned_into_zeros) {
  for (isoflash_dtype dtype : {ISOFLASH_F32, ISOFLASH_BF16, ISOFLASH_F16}) {
    Attention clean(dtype, {.seqlen_q = 70, .seqlen_kv = 70, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 16});
    clean.fill_noise();
    clean.run();
    expect_right(clean);
    Attention one(dtype, clean.sizes);
    one.fill_noise();
    one.q.set({0, 33, 1, 5}, kNan);
    one.run();
    expect_right(one);
    for (int64_t i = 0; i < 70; ++i) {
      EXPECT_EQ(std::isnan(one.lse_of(0, 1, i)), i == 33);
      if (i == 33) continue;
      EXPECT_EQ(one.lse_of(0, 1, i), clean.lse_of(0, 1, i)) << "a NaN of row 33 reached row " << i;
    }
    Attention all(dtype, clean.sizes);
    all.fill_noise();
    all.q.fill(kNan);
    all.run();
    expect_right(all);
  }
}

}  // namespace
}  // namespace iso::known_faults
