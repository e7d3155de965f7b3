// Known faults: GQA, MQA and a head size of V that differs.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R97_head_dim_of_v_ignored) {
  struct Dims {
    int64_t qk, v;
  };
  for (const Dims dims : {Dims{64, 128}, Dims{128, 64}, Dims{192, 128}, Dims{96, 32}, Dims{256, 1}, Dims{1, 256}}) {
    SCOPED_TRACE(std::to_string(dims.qk) + " / " + std::to_string(dims.v));
    for (isoflash_dtype dtype : {ISOFLASH_F32, ISOFLASH_BF16}) {
      Attention a(dtype, {.seqlen_q = 40,
                          .seqlen_kv = 40,
                          .num_heads_q = 2,
                          .num_heads_kv = 1,
                          .head_dim = dims.qk,
                          .head_dim_v = dims.v});
      a.fill_noise();
      const auto last_channel = [&](Buffer& x) {
        x.for_each([&](Index i) {
          if (i[3] + 1 < dims.v) x.set(i, 0.0);
        });
      };
      last_channel(a.v), last_channel(a.dout);
      a.run();
      expect_right(a);
      EXPECT_NE(a.dq.get({0, 3, 0, 0}), 0.0) << "the last channel of V carries the whole signal";
    }
  }
}

TEST(KnownFaults, R98_group_ratio_is_not_an_integer) {
  struct Heads {
    int64_t q, kv;
  };
  for (const Heads heads : {Heads{3, 2}, Heads{33, 2}, Heads{2, 4}}) {
    Attention a(ISOFLASH_BF16, {.seqlen_q = 4, .seqlen_kv = 4, .num_heads_q = heads.q, .num_heads_kv = heads.kv});
    const Refusal refusal = a.refusal();
    EXPECT_EQ(refusal.name, "HEAD_RATIO");
    EXPECT_NE(refusal.message.find(std::to_string(heads.q)), std::string::npos) << refusal.message;
    EXPECT_NE(refusal.message.find(std::to_string(heads.kv)), std::string::npos) << refusal.message;
  }
}

TEST(KnownFaults, R98_any_integer_group_ratio) {
  for (const int64_t group : {1, 2, 5, 7, 33}) {
    SCOPED_TRACE("group of " + std::to_string(group));
    Attention a(ISOFLASH_F16,
                {.batch = 2, .seqlen_q = 19, .seqlen_kv = 35, .num_heads_q = 2 * group, .num_heads_kv = 2, .head_dim = 24});
    a.causal();
    a.fill_noise();
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R100_few_kv_heads_and_single_queries) {
  for (const int64_t num_heads_kv : {1, 2, 4}) {
    Attention a(
        ISOFLASH_BF16,
        {.batch = 4, .seqlen_q = 1, .seqlen_kv = 300, .num_heads_q = 8, .num_heads_kv = num_heads_kv, .head_dim = 32});
    a.use_rows({}, {1, 17, 300, 0});
    a.fill_noise();
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R101_zero_heads) {
  Attention no_k(ISOFLASH_F32,
                 {.batch = 2, .seqlen_q = 4, .seqlen_kv = 4, .num_heads_q = 8, .num_heads_kv = 8, .head_dim = 16});
  no_k.describe();
  no_k.problem.k.shape[2] = 0;
  EXPECT_NE(plan_refusal(no_k.problem).id, 0) << "k without heads";
  no_k.problem.v.shape[2] = 0;
  EXPECT_EQ(plan_refusal(no_k.problem).name, "HEAD_RATIO") << "k and v without heads";
  Attention none(ISOFLASH_F32,
                 {.batch = 2, .seqlen_q = 4, .seqlen_kv = 4, .num_heads_q = 0, .num_heads_kv = 8, .head_dim = 16});
  if (none.refusal().id != 0) return;  // refused by name, or empty outputs and zero gradients
  none.fill_noise();
  none.run();
  for (double x : values_of(none.dk)) EXPECT_EQ(x, 0.0);
}

}  // namespace
}  // namespace iso::known_faults
