// Known faults: strides, layouts, alignment, views. Every tensor's gaps and guard bands are checked by run().
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

// The nine tensors of forward and backward, lse apart.
std::array<std::pair<const char*, Buffer Attention::*>, 8> tensors() {
  return {{{"q", &Attention::q},
           {"k", &Attention::k},
           {"v", &Attention::v},
           {"out", &Attention::out},
           {"dout", &Attention::dout},
           {"dq", &Attention::dq},
           {"dk", &Attention::dk},
           {"dv", &Attention::dv}}};
}

TEST(KnownFaults, R34_dout_with_other_strides_than_out) {
  const Sizes sizes{.batch = 2, .seqlen_q = 32, .seqlen_kv = 32, .num_heads_q = 4, .num_heads_kv = 1, .head_dim = 128};
  Attention a(ISOFLASH_F16, sizes);
  a.dout =
      Buffer(ISOFLASH_F16, {2, 32, 4, 128}, {32 * 4 * 128, 128, 32 * 128, 1});  // stored as (batch, heads, seqlen, dim)
  a.fill_noise();
  a.run();
  expect_right(a);
}

TEST(KnownFaults, R34_expanded_dout) {
  Attention a(ISOFLASH_BF16,
              {.batch = 2, .seqlen_q = 32, .seqlen_kv = 32, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 16});
  a.fill_noise();
  a.dout = Buffer(ISOFLASH_BF16, {2, 32, 2, 16}, {0, 0, 0, 0});  // the gradient of sum(out)
  a.dout.set({}, 1.0);
  a.run();
  expect_right(a);
}

TEST(KnownFaults, R35_same_strides_on_a_shifted_base_pointer) {
  for (const auto& [name, member] : tensors()) {
    SCOPED_TRACE(name);
    for (isoflash_dtype dtype : {ISOFLASH_BF16, ISOFLASH_F32}) {
      Attention a(dtype, {40, 3}, {40, 3}, {.num_heads_q = 2, .num_heads_kv = 2, .head_dim = 64});
      a.*member = Buffer(dtype, (a.*member).shape(), {}, 1);  // one element past a 64-byte boundary
      a.fill_noise();
      a.run();
      expect_right(a);
    }
  }
}

TEST(KnownFaults, R37_row_stride_is_no_multiple_of_16_bytes) {
  for (const auto& [name, member] : tensors()) {
    for (const auto& strides : {std::vector<int64_t>{132, 66, 1}, {129, 64, 1}, {128 + 8, 64, 1}}) {
      SCOPED_TRACE(name + (", token stride " + std::to_string(strides[0])));
      Attention a(ISOFLASH_F16, {70}, {70}, {.num_heads_q = 2, .num_heads_kv = 2, .head_dim = 64});
      a.*member = Buffer(ISOFLASH_F16, (a.*member).shape(), strides);
      a.fill_noise();
      a.run();
      expect_right(a);
    }
  }
}

TEST(KnownFaults, R38_gradients_without_16_byte_alignment) {
  Attention a(ISOFLASH_BF16, {.seqlen_q = 33, .seqlen_kv = 33, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 64});
  for (Buffer* x : {&a.dout, &a.dq, &a.dk, &a.dv}) *x = Buffer(ISOFLASH_BF16, x->shape(), {}, 1);
  a.fill_noise();
  a.run();
  expect_right(a);
}

TEST(KnownFaults, R40_one_operand_is_a_transposed_view) {
  for (const auto& [name, member] : tensors()) {
    SCOPED_TRACE(name);
    Attention a(ISOFLASH_BF16, {.seqlen_q = 62, .seqlen_kv = 62, .num_heads_q = 4, .num_heads_kv = 4, .head_dim = 128});
    a.*member = Buffer(ISOFLASH_BF16, {1, 62, 4, 128}, {62 * 4 * 128, 128, 62 * 128, 1});
    a.fill_noise();
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R40_reversed_rows_and_shared_heads) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 62, .seqlen_kv = 62, .num_heads_q = 4, .num_heads_kv = 4, .head_dim = 24});
  a.q = Buffer(ISOFLASH_F32, {1, 62, 4, 24}, {1, -4 * 24, 24, 1});  // newest row first
  a.k = Buffer(ISOFLASH_F32, {1, 62, 4, 24}, {1, 24, 0, 1});        // all heads read one
  a.fill_noise();
  a.run();
  expect_right(a);
}

// q, k, v are slices of one projection's buffer [rows][u | v | q | k], and the gradients go to a buffer of the same form.
TEST(KnownFaults, R41_views_of_a_fused_projection) {
  const int64_t heads = 4, dim = 128, slice = heads * dim, width = 4 * slice;
  Attention a(ISOFLASH_BF16, {3, 0, 70, 129}, {3, 0, 70, 129},
              {.num_heads_q = heads, .num_heads_kv = heads, .head_dim = dim});
  a.fill_noise();
  a.run();
  expect_right(a);
  const int64_t rows = a.sizes.seqlen_q;
  Buffer fused(ISOFLASH_BF16, {rows, 4 * heads, dim}), gradients(ISOFLASH_BF16, {rows, 4 * heads, dim});
  const auto copy = [&](const Buffer& from, int64_t n) {
    from.for_each([&](Index i) { fused.set({i[0], n * heads + i[1], i[2]}, from.get(i)); });
  };
  copy(a.v, 1), copy(a.q, 2), copy(a.k, 3);
  const auto view = [&](Buffer& whole, int64_t n) {
    isoflash_tensor t = whole.tensor();
    t.shape[1] = heads, t.strides[0] = width;
    t.data = static_cast<u16*>(t.data) + n * slice;
    return t;
  };
  isoflash_problem problem = a.problem;
  problem.v = view(fused, 1), problem.q = view(fused, 2), problem.k = view(fused, 3);
  PlanHandle plan;
  const Refusal refused = plan_refusal(problem, &plan);
  ASSERT_EQ(refused.id, 0) << refused.message;
  const ErrorHandle error(isoflash_error_create());
  Bytes workspace(std::max(isoflash_forward_workspace_size(plan.get()), isoflash_backward_workspace_size(plan.get())),
                  0xFF);
  Buffer out(ISOFLASH_BF16, a.out.shape());
  isoflash_forward_args forward;
  isoflash_forward_args_init(&forward);
  forward.q = problem.q, forward.k = problem.k, forward.v = problem.v, forward.out = out.tensor(),
  forward.lse = a.lse.tensor();
  forward.workspace = workspace.data(), forward.workspace_size = workspace.size();
  ASSERT_EQ(isoflash_forward(plan.get(), &forward, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
  expect_same_bits(out, a.out, "out from views of the fused buffer");
  isoflash_backward_args backward;
  isoflash_backward_args_init(&backward);
  backward.q = problem.q, backward.k = problem.k, backward.v = problem.v, backward.out = out.tensor();
  backward.lse = a.lse.tensor(), backward.dout = a.dout.tensor();
  backward.dv = view(gradients, 1), backward.dq = view(gradients, 2), backward.dk = view(gradients, 3);
  backward.workspace = workspace.data(), backward.workspace_size = workspace.size();
  ASSERT_EQ(isoflash_backward(plan.get(), &backward, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
  const auto expect_slice = [&](const char* name, const Buffer& right, int64_t n) {
    int64_t different = 0;
    right.for_each([&](Index i) { different += gradients.get({i[0], n * heads + i[1], i[2]}) != right.get(i); });
    EXPECT_EQ(different, 0) << name << ": elements of the fused gradient that differ from the contiguous call's";
  };
  expect_slice("dv", a.dv, 1);
  expect_slice("dq", a.dq, 2);
  expect_slice("dk", a.dk, 3);
  int64_t written = 0;
  gradients.for_each([&](Index i) { written += i[1] < heads && !std::isnan(gradients.get(i)); });
  EXPECT_EQ(written, 0) << "the u slice of the fused gradient is nobody's output";
}

TEST(KnownFaults, R44_seqlen_equal_to_heads_hides_a_swap) {
  Attention a(ISOFLASH_BF16,
              {.batch = 2, .seqlen_q = 16, .seqlen_kv = 16, .num_heads_q = 16, .num_heads_kv = 16, .head_dim = 64});
  a.fill_noise();
  a.run();
  expect_right(a);
}

TEST(KnownFaults, Unnumbered_outputs_that_share_memory) {
  const auto forward = [](const std::function<void(Attention&, isoflash_forward_args&)>& spoil) {
    Attention a(ISOFLASH_F32, {.seqlen_q = 8, .seqlen_kv = 8, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 8});
    a.fill_noise();
    a.describe();
    PlanHandle plan;
    EXPECT_EQ(plan_refusal(a.problem, &plan).id, 0);
    isoflash_forward_args args;
    isoflash_forward_args_init(&args);
    args.q = a.q.tensor(), args.k = a.k.tensor(), args.v = a.v.tensor(), args.out = a.out.tensor(),
    args.lse = a.lse.tensor();
    spoil(a, args);
    Bytes workspace(isoflash_forward_workspace_size(plan.get()));
    args.workspace = workspace.data(), args.workspace_size = workspace.size();
    const ErrorHandle error(isoflash_error_create());
    return refusal_of(isoflash_forward(plan.get(), &args, error.get()), error);
  };
  EXPECT_EQ(forward([](Attention&, isoflash_forward_args&) {}).id, 0);
  for (const auto input : {&isoflash_forward_args::q, &isoflash_forward_args::k, &isoflash_forward_args::v}) {
    EXPECT_NE(forward([&](Attention&, isoflash_forward_args& args) { args.out.data = (args.*input).data; }).id, 0)
        << "out over an input must be refused";
  }
  EXPECT_NE(forward([](Attention&, isoflash_forward_args& args) { args.lse.data = args.out.data; }).id, 0);
  EXPECT_NE(forward([](Attention&, isoflash_forward_args& args) { args.out.strides[2] = 0; }).id, 0)
      << "an expanded out (stride 0) must be refused";
}

TEST(KnownFaults, Unnumbered_q_k_v_are_one_tensor) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 33, .seqlen_kv = 33, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 16});
  a.q.fill_noise(5);
  a.k = a.q, a.v = a.q;
  a.dout.fill_noise(6);
  a.run();
  expect_right(a);
  isoflash_problem one = a.problem;
  one.k = one.v = one.q;
  PlanHandle plan;
  ASSERT_EQ(plan_refusal(one, &plan).id, 0);
  Buffer out(ISOFLASH_F32, a.out.shape());
  isoflash_forward_args args;
  isoflash_forward_args_init(&args);
  args.q = args.k = args.v = one.q, args.out = out.tensor();
  args.lse = a.lse.tensor();
  Bytes workspace(isoflash_forward_workspace_size(plan.get()));
  args.workspace = workspace.data(), args.workspace_size = workspace.size();
  const ErrorHandle error(isoflash_error_create());
  ASSERT_EQ(isoflash_forward(plan.get(), &args, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
  expect_same_bits(out, a.out, "out of one tensor given three times");
}

}  // namespace
}  // namespace iso::known_faults
