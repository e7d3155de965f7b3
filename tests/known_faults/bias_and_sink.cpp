// Known faults: additive bias, its gradient, and sinks.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

// -inf is "not there": one entry, a whole row, the sink.
TEST(KnownFaults, R19_minus_infinity_in_an_additive_term) {
  for (isoflash_dtype dtype : {ISOFLASH_F32, ISOFLASH_BF16}) {
    for (const double sink : {-kInf, 0.5}) {
      Attention a(dtype,
                  {.batch = 2, .seqlen_q = 70, .seqlen_kv = 90, .num_heads_q = 4, .num_heads_kv = 2, .head_dim = 32});
      a.fill_noise();
      a.add_bias({2, 4, 70, 90});
      for (int64_t j = 0; j < 90; ++j) a.bias.set({0, 1, 3, j}, -kInf), a.bias.set({1, 2, 69, j}, -kInf);
      a.bias.set({0, 0, 5, 89}, -kInf);
      a.add_sink(sink);
      a.run();
      expect_right(a);
      for (int64_t d = 0; d < 32; ++d) EXPECT_EQ(a.out_of(0, 3, 1, d), 0.0) << "out of a row whose bias is -inf";
      EXPECT_EQ(a.lse_of(0, 1, 3), sink) << "lse of a row whose bias is -inf";
      EXPECT_EQ(a.dbias.get({0, 0, 5, 89}), 0.0) << "gradient of a bias of -inf";
    }
  }
}

// The same entries of -inf in the sink alone: as if there were no sink, in every bit.
TEST(KnownFaults, R19_sink_of_minus_infinity_is_no_sink) {
  const Sizes sizes{.batch = 2, .seqlen_q = 40, .seqlen_kv = 20, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16};
  Attention with(ISOFLASH_F32, sizes), without(ISOFLASH_F32, sizes);
  for (Attention* a : {&with, &without}) a->causal(), a->fill_noise();
  with.add_sink(-kInf);
  with.run(), without.run();
  expect_right(with);
  expect_same_bits(with, without);
  EXPECT_EQ(with.dsink.get({0}), 0.0);
}

// +inf is IEEE arithmetic: inf - inf makes the row NaN, and no other row.
TEST(KnownFaults, R19_plus_infinity_makes_its_row_nan) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 20, .seqlen_kv = 30, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
  a.fill_noise();
  a.add_bias({1, 2, 20, 30});
  a.bias.set({0, 1, 7, 11}, kInf);
  a.run();
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < 20; ++i)
      EXPECT_EQ(std::isnan(a.out_of(0, i, h, 3)), h == 1 && i == 7) << "head " << h << ", row " << i;
}

TEST(KnownFaults, R43_bias_of_any_length_and_stride) {
  for (const int64_t keys : {43, 77, 80}) {
    for (const int64_t gap : {0, 1, 3}) {  // a slice of a wider buffer
      SCOPED_TRACE(std::to_string(keys) + " keys, row stride " + std::to_string(keys + gap));
      Attention a(ISOFLASH_BF16,
                  {.batch = 2, .seqlen_q = 19, .seqlen_kv = keys, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 64});
      a.fill_noise();
      const int64_t row = keys + gap;
      a.add_bias({2, 2, 19, keys}, {2 * 19 * row, 19 * row, row, 1});
      a.run();
      expect_right(a);
    }
  }
}

// The mask of causal attention and a bias that grows with the distance, at a length that is no multiple of any tile.
TEST(KnownFaults, R73_distance_bias_with_a_ragged_tail) {
  Attention a(ISOFLASH_BF16, {.seqlen_q = 1025, .seqlen_kv = 1025, .head_dim = 64});
  a.causal();
  a.fill_noise();
  a.dout.fill(0.01 / (1025 * 64));
  a.add_bias({1, 1, 1025, 1025});
  a.bias.fill([](Index i) { return static_cast<double>(i[2] - i[3]); });
  a.run();
  expect_right(a);
}

TEST(KnownFaults, R95_bias_gradient_has_the_shape_of_the_bias) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 1, 100, 100}, {1, 4, 100, 100}, {1, 1, 100, 100}, {2, 4, 100, 100}}) {
    SCOPED_TRACE("bias (" + std::to_string(shape[0]) + ", " + std::to_string(shape[1]) + ", 100, 100)");
    Attention a(ISOFLASH_F32,
                {.batch = 2, .seqlen_q = 100, .seqlen_kv = 100, .num_heads_q = 4, .num_heads_kv = 4, .head_dim = 16});
    a.causal();
    a.fill_noise();
    a.add_bias(shape);
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R160_bias_gradient_with_a_batch) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3, 2, 30, 40}, {3, 1, 30, 40}, {1, 2, 30, 40}, {1, 1, 30, 40}, {3, 2, 1, 40}, {1, 1, 1, 40}}) {
    Attention a(ISOFLASH_BF16,
                {.batch = 3, .seqlen_q = 30, .seqlen_kv = 40, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
    a.fill_noise();
    a.add_bias(shape);
    a.run();
    expect_right(a);
  }
}

// A bias made with three columns more than it needs, of which the call sees a slice.
TEST(KnownFaults, R151_bias_is_a_slice_that_is_not_aligned) {
  Attention a(ISOFLASH_F32,
              {.batch = 2, .seqlen_q = 33, .seqlen_kv = 77, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 32});
  a.fill_noise();
  a.add_bias({2, 1, 33, 77}, {33 * 80, 33 * 80, 80, 1});
  a.bias.fill(0.0);
  a.run();
  expect_right(a);
}

// Every subset of the gradients, the bias alone among them: those asked for are right, the others are not written.
TEST(KnownFaults, R154_only_the_bias_needs_a_gradient) {
  Attention a(ISOFLASH_F32,
              {.batch = 2, .seqlen_q = 33, .seqlen_kv = 33, .num_heads_q = 4, .num_heads_kv = 2, .head_dim = 16});
  a.causal();
  a.fill_noise();
  a.add_bias({1, 4, 33, 33});
  a.add_sink(0.3);
  a.run();
  expect_right(a);
  PlanHandle plan;
  ASSERT_EQ(plan_refusal(a.problem, &plan).id, 0);
  for (int wanted = 1; wanted < 32; ++wanted) {
    SCOPED_TRACE(wanted);
    isoflash_backward_args args;
    isoflash_backward_args_init(&args);
    args.q = a.q.tensor(), args.k = a.k.tensor(), args.v = a.v.tensor(), args.out = a.out.tensor(),
    args.lse = a.lse.tensor(), args.dout = a.dout.tensor(), args.sink = a.sink.tensor(), args.bias = a.bias.tensor();
    const struct {
      Buffer* whole;
      isoflash_tensor* argument;
    } gradients[] = {
        {&a.dq, &args.dq}, {&a.dk, &args.dk}, {&a.dv, &args.dv}, {&a.dbias, &args.dbias}, {&a.dsink, &args.dsink}};
    std::array<Buffer, 5> parts;
    for (int n = 0; n < 5; ++n) {
      parts[n] = Buffer(gradients[n].whole->dtype(), gradients[n].whole->shape());
      if (wanted >> n & 1) *gradients[n].argument = parts[n].tensor();
    }
    Bytes workspace(isoflash_backward_workspace_size(plan.get()), 0xFF);
    args.workspace = workspace.data(), args.workspace_size = workspace.size();
    const ErrorHandle error(isoflash_error_create());
    ASSERT_EQ(isoflash_backward(plan.get(), &args, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
    for (int n = 0; n < 5; ++n)
      if (wanted >> n & 1) expect_same_bits(parts[n], *gradients[n].whole, "a gradient of a subset");
  }
}

}  // namespace
}  // namespace iso::known_faults
