// Known faults: integer width and launch limits. Large address ranges are reserved, not filled: the system commits only the
// pages that are touched.
#include <sys/mman.h>

#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

// bf16 elements of a huge range, zero until written.
class LazyElements {
 public:
  explicit LazyElements(int64_t count) : bytes_(static_cast<size_t>(count) * 2) {
    void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) data_ = static_cast<u16*>(p);
  }
  ~LazyElements() {
    if (data_) munmap(data_, bytes_);
  }
  LazyElements(const LazyElements&) = delete;
  u16* data() { return data_; }

 private:
  size_t bytes_;
  u16* data_ = nullptr;
};

// K, V and their gradients laid out with these strides must give what contiguous ones give.
void expect_strided_equals_contiguous(Attention& a, const std::vector<int64_t>& strides) {
  a.fill_noise();
  a.run();
  expect_right(a);
  int64_t span = a.sizes.head_dim;
  for (int n = 0; n < 3; ++n) span += (a.k.shape()[n] - 1) * strides[n];
  LazyElements k(span), v(span), dk(span), dv(span);
  if (!k.data() || !v.data() || !dk.data() || !dv.data())
    GTEST_SKIP() << "this system does not reserve " << 8 * span << " bytes";
  const auto address = [&](u16* base, Index i) {
    return base + i[0] * strides[0] + i[1] * strides[1] + i[2] * strides[2] + i[3];
  };
  a.k.for_each([&](Index i) {
    *address(k.data(), i) = to_bf16(static_cast<float>(a.k.get(i))).bits;
    *address(v.data(), i) = to_bf16(static_cast<float>(a.v.get(i))).bits;
  });
  const auto view = [&](LazyElements& x) {
    isoflash_tensor t = a.k.tensor();
    t.data = x.data();
    std::copy(strides.begin(), strides.end(), t.strides);
    return t;
  };
  isoflash_problem problem = a.problem;
  problem.k = view(k), problem.v = view(v);
  PlanHandle plan;
  const Refusal refused = plan_refusal(problem, &plan);
  ASSERT_EQ(refused.id, 0) << refused.message;
  Bytes workspace(std::max(isoflash_forward_workspace_size(plan.get()), isoflash_backward_workspace_size(plan.get())),
                  0xFF);
  Buffer out(a.dtype, a.out.shape()), dq(a.dtype, a.q.shape());
  const ErrorHandle error(isoflash_error_create());
  isoflash_forward_args forward;
  isoflash_forward_args_init(&forward);
  forward.q = a.q.tensor(), forward.k = view(k), forward.v = view(v), forward.out = out.tensor(),
  forward.lse = a.lse.tensor();
  forward.workspace = workspace.data(), forward.workspace_size = workspace.size();
  ASSERT_EQ(isoflash_forward(plan.get(), &forward, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
  isoflash_backward_args backward;
  isoflash_backward_args_init(&backward);
  backward.q = a.q.tensor(), backward.k = view(k), backward.v = view(v), backward.out = out.tensor();
  backward.lse = a.lse.tensor(), backward.dout = a.dout.tensor();
  backward.dq = dq.tensor(), backward.dk = view(dk), backward.dv = view(dv);
  backward.workspace = workspace.data(), backward.workspace_size = workspace.size();
  ASSERT_EQ(isoflash_backward(plan.get(), &backward, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
  expect_same_bits(out, a.out, "out with large strides");
  expect_same_bits(dq, a.dq, "dq with large strides");
  a.k.for_each([&](Index i) {
    EXPECT_EQ(to_float(bf16{*address(dk.data(), i)}), a.dk.get(i)) << "dk with large strides";
    EXPECT_EQ(to_float(bf16{*address(dv.data(), i)}), a.dv.get(i)) << "dv with large strides";
  });
}

TEST(KnownFaults, R49_int32_overflow_from_a_large_row_stride) {
  Attention a(ISOFLASH_BF16, {.seqlen_q = 3, .seqlen_kv = 2, .head_dim = 128});
  expect_strided_equals_contiguous(a, {128, (int64_t{1} << 31) + 64, 128, 1});
}

TEST(KnownFaults, R50_int32_overflow_in_the_batch_stride) {
  Attention a(ISOFLASH_BF16, {.batch = 5, .seqlen_q = 3, .seqlen_kv = 3, .head_dim = 64});
  expect_strided_equals_contiguous(a, {int64_t{1} << 30, 64, 64, 1});
}

TEST(KnownFaults, R53_sequence_index_of_16_bits) {
  for (const int64_t seqlen : {65536, 65537}) {
    SCOPED_TRACE(seqlen);
    // The last queries against all keys: every key counts.
    Attention last(ISOFLASH_F32, {.seqlen_q = 16, .seqlen_kv = seqlen, .head_dim = 16});
    last.causal();
    last.fill_noise();
    last.run();
    expect_right(last);
    // As many queries as keys, in a window that keeps the work linear.
    Attention all(ISOFLASH_F32, {.seqlen_q = seqlen, .seqlen_kv = seqlen, .head_dim = 16});
    all.window(3, 0);
    all.fill_noise();
    all.run();
    if (HasFatalFailure()) return;
    for (int64_t i = seqlen - 16; i < seqlen; ++i) {
      std::vector<double> weight;
      double sum = 0, right = 0;
      for (int64_t j = i - 3; j <= i; ++j) {
        double score = 0;
        for (int64_t d = 0; d < 16; ++d) score += all.q.get({0, i, 0, d}) * all.k.get({0, j, 0, d}) / 4;
        weight.push_back(std::exp(score)), sum += weight.back();
      }
      for (int64_t n = 0; n < 4; ++n) right += weight[n] / sum * all.v.get({0, i - 3 + n, 0, 15});
      EXPECT_NEAR(all.out_of(0, i, 0, 15), right, 1e-5) << "row " << i;
      EXPECT_NEAR(all.lse_of(0, 0, i), std::log(sum), 1e-5) << "row " << i;
    }
    const double last_dv = std::exp(all.lse_of(0, 0, seqlen - 1));
    EXPECT_TRUE(std::isfinite(last_dv) && all.dv.get({0, seqlen - 1, 0, 0}) != 0.0) << "dv of the last key";
  }
}

TEST(KnownFaults, R55_batch_above_65535) {
  const int64_t batch = 65537;
  Attention a(ISOFLASH_F32, {.batch = batch, .seqlen_q = 1, .seqlen_kv = 1, .head_dim = 4});
  a.fill_noise();
  a.run();
  for (int64_t b : {int64_t{0}, int64_t{65535}, batch - 1}) {
    EXPECT_EQ(a.out_of(b, 0, 0, 3), a.v.get({b, 0, 0, 3})) << "sequence " << b;
    EXPECT_EQ(a.dv.get({b, 0, 0, 3}), a.dout.get({b, 0, 0, 3})) << "sequence " << b;
  }
}

TEST(KnownFaults, R56_candidate_longer_than_65535_tokens) {
  // Groups of 65540: the second, of 3 tokens, is the short last one. The last 8 queries of the long one, and the short one.
  const int64_t long_one = 65540, keys = 8 + long_one + 3, rows = 11;
  Attention a(ISOFLASH_F32, {.seqlen_q = rows, .seqlen_kv = keys, .head_dim = 16});
  a.session(0, 8, long_one + 3, long_one);
  a.fill_noise();
  a.run();
  expect_right(a);
  a.q.fill(0.0);
  a.run();
  EXPECT_NEAR(a.lse_of(0, 0, 7), std::log(8.0 + long_one), 1e-4);
  EXPECT_NEAR(a.lse_of(0, 0, 8), std::log(8.0 + 3.0), 1e-6);
}

}  // namespace
}  // namespace iso::known_faults
