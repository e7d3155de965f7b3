// Known faults: log-sum-exp, scale and soft cap.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R103_lse_in_base_2) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 1, .seqlen_kv = 4, .head_dim = 8});
  a.fill_noise();
  a.q.fill(0.0);
  a.run();
  EXPECT_FLOAT_EQ(a.lse.get({}), std::log(4.0)) << "natural logarithm";
}

TEST(KnownFaults, R104_lse_is_per_token) {
  const std::vector<int32_t> lengths{1, 2000, 1};
  Attention a(ISOFLASH_F32, lengths, lengths, {.num_heads_q = 2, .num_heads_kv = 2, .head_dim = 8});
  a.window(20, 20);
  a.fill_noise();
  a.run();
  EXPECT_EQ(a.lse.shape(), (std::vector<int64_t>{2, 2002}));
  expect_right(a);
  // Memory follows the tokens, not batch times the longest sequence.
  std::vector<int32_t> many(1000, 1);
  many[500] = 2000;
  Attention b(ISOFLASH_F32, many, many, {.num_heads_q = 2, .num_heads_kv = 2, .head_dim = 8});
  a.describe(), b.describe();
  PlanHandle few_plan, many_plan;
  ASSERT_EQ(plan_refusal(a.problem, &few_plan).id, 0);
  ASSERT_EQ(plan_refusal(b.problem, &many_plan).id, 0);
  const size_t token_bytes = 1000 * 2 * 8 * sizeof(float);
  EXPECT_LE(isoflash_forward_workspace_size(many_plan.get()),
            isoflash_forward_workspace_size(few_plan.get()) + token_bytes);
  EXPECT_LE(isoflash_backward_workspace_size(many_plan.get()),
            isoflash_backward_workspace_size(few_plan.get()) + 4 * token_bytes);
}

// One key: lse is the capped score itself, and with a gradient of 1 on lse alone dq = scale * derivative * k.
TEST(KnownFaults, R110_softcap_formula) {
  struct Case {
    isoflash_softcap_kind kind;
    double cap, score, capped;
  };
  for (const Case& c : {Case{ISOFLASH_SOFTCAP_TANH, 10, 0, 0}, Case{ISOFLASH_SOFTCAP_TANH, 10, 10, 7.6159416},
                        Case{ISOFLASH_SOFTCAP_TANH, 10, 100, 10}, Case{ISOFLASH_SOFTCAP_TANH, 30, 10, 9.6453821},
                        Case{ISOFLASH_SOFTCAP_TANH, 30, 100, 29.923739}, Case{ISOFLASH_SOFTCAP_TANH, 30, -10, -9.6453821},
                        Case{ISOFLASH_SOFTCAP_SOFT_SIGN, 10, 10, 5}, Case{ISOFLASH_SOFTCAP_SOFT_SIGN, 30, -60, -20}}) {
    SCOPED_TRACE("cap " + std::to_string(c.cap) + ", score " + std::to_string(c.score));
    Attention a(ISOFLASH_F32, {.seqlen_q = 1, .seqlen_kv = 1, .head_dim = 1});
    a.problem.scale = 0.5;
    a.problem.softcap_kind = c.kind, a.problem.softcap = c.cap;
    a.q.fill(c.score), a.k.fill(2.0), a.v.fill(3.0), a.dout.fill(0.0);
    a.dlse = Buffer(ISOFLASH_F32, a.lse.shape());
    a.dlse.fill(1.0);
    a.run();
    expect_right(a);
    EXPECT_NEAR(a.lse.get({}), c.capped, 1e-5);
    const double ratio = c.capped / c.cap;
    const double slope = c.kind == ISOFLASH_SOFTCAP_TANH ? 1 - ratio * ratio : std::pow(1 - std::abs(ratio), 2);
    EXPECT_NEAR(a.dq.get({}), 0.5 * slope * 2.0, 1e-5);
    EXPECT_NEAR(a.dk.get({}), 0.5 * slope * c.score, 2e-4);
  }
}

TEST(KnownFaults, R110_softcap_with_masks_and_tails) {
  for (const auto kind : {ISOFLASH_SOFTCAP_TANH, ISOFLASH_SOFTCAP_SOFT_SIGN}) {
    for (isoflash_dtype dtype : {ISOFLASH_F32, ISOFLASH_BF16}) {
      Attention a(dtype, {.seqlen_q = 131, .seqlen_kv = 131, .num_heads_q = 4, .num_heads_kv = 2, .head_dim = 64});
      a.session(2, 100, 29, 3);
      a.problem.softcap_kind = kind, a.problem.softcap = 10;
      a.fill_noise(1, 4.0);
      a.dlse = Buffer(ISOFLASH_F32, a.lse.shape());
      a.dlse.fill_noise(7);
      a.run();
      expect_right(a);
    }
  }
}

TEST(KnownFaults, Unnumbered_negative_and_zero_scale) {
  for (const double scale : {-0.75, 0.0, -0.0}) {
    SCOPED_TRACE(scale);
    Attention a(ISOFLASH_F32, {.seqlen_q = 70, .seqlen_kv = 150, .head_dim = 32});
    a.causal();
    a.problem.scale = scale;
    a.fill_noise(1, 5.0);  // scores in the hundreds: a maximum taken before scaling overflows
    a.run();
    expect_right(a);
  }
}

}  // namespace
}  // namespace iso::known_faults
