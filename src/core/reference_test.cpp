// The oracle against mathematics that does not share its code: closed forms, finite differences of its own forward, and
// its single-row entry points against its whole results.
#include "core/reference.h"

#include <gtest/gtest.h>

#include <random>

namespace iso {
namespace {

using reference::Float64;
using reference::MixedPrecision;
using reference::Reference;

// A small dense float32 problem with its tensors.
struct Example {
  Problem problem;
  std::vector<Sequence> sequences;
  std::vector<float> q, k, v, dout, dlse;
  BackwardTensors tensors;

  Example(i64 batch, i32 seqlen_q, i32 seqlen_kv, i64 heads_q, i64 heads_kv, i64 dim, i64 dim_v, unsigned seed) {
    problem.batch = batch;
    problem.num_heads_q = heads_q;
    problem.num_heads_kv = heads_kv;
    problem.head_dim = dim;
    problem.head_dim_v = dim_v;
    problem.rows_q = seqlen_q;
    problem.rows_kv = seqlen_kv;
    problem.scale = 0.7;
    for (i64 b = 0; b < batch; ++b) {
      Sequence s;
      s.q_batch = s.kv_batch = b;
      s.seqlen_q = s.slot_q = seqlen_q;
      s.seqlen_kv = s.slot_kv = seqlen_kv;
      s.mask.seqlen_kv = s.mask.history_end_slot = s.mask.history_end = seqlen_kv;
      s.mask.query_offset = seqlen_kv - seqlen_q;
      sequences.push_back(s);
    }
    std::mt19937 random(seed);
    tensors.q = fill(q, {batch, seqlen_q, heads_q, dim}, random);
    tensors.k = fill(k, {batch, seqlen_kv, heads_kv, dim}, random);
    tensors.v = fill(v, {batch, seqlen_kv, heads_kv, dim_v}, random);
    tensors.dout = fill(dout, {batch, seqlen_q, heads_q, dim_v}, random);
    tensors.dlse = fill(dlse, {batch, heads_q, seqlen_q}, random);
  }

  static Tensor fill(std::vector<float>& data, std::vector<i64> shape, std::mt19937& random) {
    Tensor t;
    t.rank = static_cast<i32>(shape.size());
    i64 stride = 1;
    for (i32 axis = t.rank - 1; axis >= 0; --axis) {
      t.shape[axis] = shape[axis];
      t.strides[axis] = stride;
      stride *= shape[axis];
    }
    data.resize(stride);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& x : data) x = uniform(random);
    t.data = data.data();
    return t;
  }

  // The scalar whose gradients the backward gives: sum(dout * out) + sum(dlse * lse) over the rows that see a key.
  double loss() {
    const auto result = Reference<Float64>(problem, sequences, tensors).forward();
    double sum = 0;
    for (std::size_t n = 0; n < result.out.size(); ++n) sum += result.out[n] * dout[n];
    for (std::size_t n = 0; n < result.lse.size(); ++n)
      if (std::isfinite(result.lse[n])) sum += result.lse[n] * dlse[n];
    return sum;
  }

  double slope(float& x) {
    const float at = x, step = 1.0f / 1024;
    x = at + step;
    const double above = loss();
    const double high = x;
    x = at - step;
    const double below = loss();
    const double low = x;
    x = at;
    return (above - below) / (high - low);
  }
};

void give_ranker_mask(Example& example) {
  for (Sequence& s : example.sequences) {
    MaskSpec& m = s.mask;  // context 1, history 4 of which 3 valid, gap 1, candidates 4 in groups of 2
    m.context_end = 1;
    m.history_end_slot = 5;
    m.history_begin = 2;
    m.history_end = 5;
    m.candidate_begin = 6;
    m.candidate_end = 10;
    m.candidate_group_size = 2;
    m.history_kind = HistoryKind::causal;
  }
}

TEST(Reference, EqualScoresGiveTheMeanOfV) {
  Example example(1, 3, 5, 1, 1, 2, 2, 1);
  std::fill(example.q.begin(), example.q.end(), 0.0f);
  const auto row = Reference<Float64>(example.problem, example.sequences, example.tensors).forward_row(0, 0, 1);
  double mean = 0;
  for (int j = 0; j < 5; ++j) mean += example.v[j * 2] / 5.0;
  EXPECT_NEAR(row.out[0], mean, 1e-15);
  EXPECT_NEAR(row.lse, std::log(5.0), 1e-15);
}

TEST(Reference, OneVisibleKeyGivesItsValueWhateverTheScore) {
  Example example(1, 1, 1, 1, 1, 1, 1, 1);
  example.problem.scale = 1;
  example.q[0] = -20000;
  example.k[0] = 1;
  const auto row = Reference<Float64>(example.problem, example.sequences, example.tensors).forward_row(0, 0, 0);
  EXPECT_EQ(row.out[0], example.v[0]);
  EXPECT_EQ(row.lse, -20000);
}

TEST(Reference, RowsThatSeeNothingAreZeroAndMinusInfinity) {
  Example example(1, 6, 4, 1, 1, 3, 3, 1);
  example.sequences[0].mask.history_kind = HistoryKind::causal;  // bottom-right: rows 0 and 1 see nothing
  Reference<Float64> oracle(example.problem, example.sequences, example.tensors);
  const auto forward = oracle.forward();
  const auto backward = oracle.backward();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(std::isinf(forward.lse[i]), i < 2) << "row " << i;
    EXPECT_EQ(forward.out[i * 3] == 0, i < 2) << "row " << i;
    EXPECT_EQ(backward.dq[i * 3] == 0, i < 2) << "row " << i;
  }
}

TEST(Reference, HiddenKeysAreNeverRead) {
  Example example(1, 10, 10, 2, 1, 3, 2, 1);
  give_ranker_mask(example);
  const auto clean = Reference<Float64>(example.problem, example.sequences, example.tensors).forward();
  for (int j : {1, 5, 8, 9})  // padding, gap, and the second candidate group
    for (int d = 0; d < 3; ++d) example.k[j * 3 + d] = example.v[j * 2 + d % 2] = NAN;
  const auto poisoned = Reference<Float64>(example.problem, example.sequences, example.tensors).forward();
  for (int i = 0; i < 8 * 2 * 2; ++i) EXPECT_EQ(clean.out[i], poisoned.out[i]);
  EXPECT_TRUE(std::isnan(poisoned.out[8 * 2 * 2]));
}

class ReferenceGradients : public testing::TestWithParam<SoftcapKind> {};

TEST_P(ReferenceGradients, EqualFiniteDifferences) {
  Example example(2, 10, 10, 4, 2, 3, 2, 5);
  give_ranker_mask(example);
  example.problem.softcap_kind = GetParam();
  example.problem.softcap = 0.9;
  const auto gradients = Reference<Float64>(example.problem, example.sequences, example.tensors).backward();
  for (std::size_t n = 0; n < example.q.size(); n += 7)
    EXPECT_NEAR(gradients.dq[n], example.slope(example.q[n]), 2e-6) << n;
  for (std::size_t n = 0; n < example.k.size(); n += 5)
    EXPECT_NEAR(gradients.dk[n], example.slope(example.k[n]), 2e-6) << n;
  for (std::size_t n = 0; n < example.v.size(); n += 3)
    EXPECT_NEAR(gradients.dv[n], example.slope(example.v[n]), 2e-6) << n;
}

INSTANTIATE_TEST_SUITE_P(Softcaps, ReferenceGradients,
                         testing::Values(SoftcapKind::none, SoftcapKind::tanh, SoftcapKind::soft_sign));

TEST(Reference, SingleRowsEqualTheWhole) {
  Example example(2, 10, 10, 4, 2, 3, 2, 9);
  give_ranker_mask(example);
  const auto forward = Reference<Float64>(example.problem, example.sequences, example.tensors).forward();
  const auto backward = Reference<Float64>(example.problem, example.sequences, example.tensors).backward();
  Reference<Float64> rows(example.problem, example.sequences, example.tensors);
  for (int b = 0; b < 2; ++b) {
    for (int i = 0; i < 10; ++i) {
      for (int h = 0; h < 4; ++h) {
        const auto row = rows.forward_row(b, h, i);
        const auto dq = rows.dq_row(b, h, i);
        EXPECT_EQ(row.lse, forward.lse[(b * 4 + h) * 10 + i]);
        for (int d = 0; d < 2; ++d) EXPECT_EQ(row.out[d], forward.out[((b * 10 + i) * 4 + h) * 2 + d]);
        for (int d = 0; d < 3; ++d) EXPECT_NEAR(dq[d], backward.dq[((b * 10 + i) * 4 + h) * 3 + d], 1e-15);
      }
      for (int h = 0; h < 2; ++h) {
        const auto gradients = rows.dkv_row(b, h, i);
        for (int d = 0; d < 3; ++d) EXPECT_NEAR(gradients.dk[d], backward.dk[((b * 10 + i) * 2 + h) * 3 + d], 1e-14);
        for (int d = 0; d < 2; ++d) EXPECT_NEAR(gradients.dv[d], backward.dv[((b * 10 + i) * 2 + h) * 2 + d], 1e-14);
      }
    }
  }
}

TEST(Reference, MixedPrecisionIsCloseButNotEqual) {
  Example example(1, 8, 40, 2, 1, 16, 16, 3);
  example.problem.dtype = DType::bf16;  // rounds P and the results; the tensors stay float32
  const auto truth = Reference<Float64>(example.problem, example.sequences, example.tensors).forward();
  const auto rounded = Reference<MixedPrecision>(example.problem, example.sequences, example.tensors).forward();
  double worst = 0;
  for (std::size_t n = 0; n < truth.out.size(); ++n) worst = std::max(worst, std::abs(truth.out[n] - rounded.out[n]));
  EXPECT_GT(worst, 1e-5);
  EXPECT_LT(worst, 5e-3);
}

TEST(Reference, UnavoidableErrorCoversFloat32WhereDsCancels) {
  Example example(1, 4, 6, 2, 1, 8, 8, 3);
  std::fill(example.v.begin(), example.v.end(), 1.0f);  // dP = D: dq and dk are zero but for rounding
  example.tensors.dlse = Tensor{};
  const auto rounded = Reference<MixedPrecision>(example.problem, example.sequences, example.tensors).backward();
  const auto error = Reference<Float64>(example.problem, example.sequences, example.tensors).unavoidable_error(0x1p-24);
  const auto largest = [](const auto& x) { return std::abs(*std::max_element(x.begin(), x.end())); };
  EXPECT_LE(largest(rounded.dq), largest(error.dq));
  EXPECT_LE(largest(rounded.dk), largest(error.dk));
  EXPECT_LT(largest(error.dq), 1e-5);
  EXPECT_LT(largest(error.dv), 1e-5);
}

}  // namespace
}  // namespace iso
