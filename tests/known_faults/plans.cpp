// Known faults: what a plan may take from its problem, and what comes with each call.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

// The plan was made for contiguous tensors; the call's gradients lie as their own tensors do, transposed or not.
TEST(KnownFaults, R145_strides_of_the_call_are_not_those_of_the_plan) {
  const Sizes sizes{.batch = 2, .seqlen_q = 40, .seqlen_kv = 40, .num_heads_q = 4, .num_heads_kv = 4, .head_dim = 32};
  const std::vector<int64_t> shape{2, 40, 4, 32}, heads_first{40 * 128, 32, 40 * 32, 1};
  for (const auto& transposed : {std::vector<Buffer Attention::*>{&Attention::q, &Attention::dout, &Attention::dq},
                                 {&Attention::v, &Attention::dv},
                                 {&Attention::dk},
                                 {&Attention::q, &Attention::k, &Attention::v, &Attention::out, &Attention::dq}}) {
    Attention a(ISOFLASH_BF16, sizes);
    a.causal();
    a.describe();
    PlanHandle plan;
    ASSERT_EQ(plan_refusal(a.problem, &plan).id, 0);
    for (const auto x : transposed) a.*x = Buffer(ISOFLASH_BF16, shape, heads_first);
    a.fill_noise();
    ASSERT_TRUE(a.forward(plan.get()));
    a.backward(plan.get());
    expect_right(a);
  }
}

// A plan is made from shapes: no tensor needs memory, and none that has some is touched.
TEST(KnownFaults, R146_planning_reaches_for_the_data) {
  Attention a(ISOFLASH_F32, {30, 5}, {30, 5}, {.num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
  a.session(2, 0, 3);
  a.mask().history_len.value = ISOFLASH_DEFAULT;
  a.visible = [&a](int64_t b, int64_t i, int64_t j) {
    const int64_t shared = a.length_kv[b] - 3;
    return j < shared || i == j;
  };
  a.add_sink(0.5);
  a.add_bias({2, 35, 30});
  a.fill_noise();
  a.describe();
  isoflash_problem without = a.problem;
  for (isoflash_tensor* t : {&without.q, &without.k, &without.v, &without.out, &without.lse, &without.sink, &without.bias})
    t->data = nullptr;
  PlanHandle plan;
  const Refusal refused = plan_refusal(without, &plan);
  ASSERT_EQ(refused.id, 0) << refused.message;
  ASSERT_TRUE(a.forward(plan.get()));
  a.backward(plan.get());
  expect_right(a);
}

// One process, many lengths: each is planned for itself and right.
TEST(KnownFaults, R148_twenty_lengths_in_one_process) {
  for (int32_t n = 0; n < 20; ++n) {
    const int32_t length = 1 + n * n % 97;
    Attention a(n % 2 == 0 ? ISOFLASH_F32 : ISOFLASH_BF16, {length, n}, {length, n},
                {.num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
    a.causal();
    a.fill_noise();
    a.run();
    expect_right(a);
  }
}

// The same shapes again with another scale, type, cap, window, layout: each call is what it says, not what the last said.
TEST(KnownFaults, R137_each_plan_is_its_own) {
  const Sizes sizes{.batch = 2, .seqlen_q = 50, .seqlen_kv = 50, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 32};
  const auto run = [&](int which) {
    Attention a(which == 3 ? ISOFLASH_F16 : ISOFLASH_BF16, sizes);
    if (which == 1) a.problem.scale = 1.0;
    if (which == 2) a.k = Buffer(ISOFLASH_BF16, a.k.shape(), {50 * 64, 32, 50 * 32, 1});
    if (which == 4) a.window(7, 0);
    if (which == 5) a.problem.softcap_kind = ISOFLASH_SOFTCAP_TANH, a.problem.softcap = 3;
    if (which == 6) a.causal();
    if (which == 7) a.add_sink(1.0);
    a.fill_noise();
    a.run();
    expect_right(a);
  };
  for (uint64_t n = 0; n < 24; ++n) run(static_cast<int>((noise(5, n) + 1) * 4));
}

}  // namespace
}  // namespace iso::known_faults
