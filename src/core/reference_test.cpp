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
  std::vector<float> q, k, v, dout, dlse, sink, bias;
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
      s.seqlen_kv = s.slot_kv = s.seqlen_cached = seqlen_kv;
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

  void add_sink() {
    std::mt19937 random(17);
    tensors.sink = fill(sink, {problem.num_heads_q}, random);
  }
  void add_bias(std::vector<i64> shape) {
    std::mt19937 random(18);
    tensors.bias = fill(bias, std::move(shape), random);
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

TEST(Reference, SinkTakesItsShareOfTheWeight) {
  Example example(1, 1, 1, 1, 1, 1, 2, 1);  // one key with score ln 3, sink 0: weights 3/4 and 1/4
  example.problem.scale = 1;
  example.q[0] = 1;
  example.k[0] = std::log(3.0f);
  example.add_sink();
  example.sink[0] = 0;
  Reference<Float64> oracle(example.problem, example.sequences, example.tensors);
  const auto row = oracle.forward_row(0, 0, 0);
  EXPECT_NEAR(row.out[0], 0.75 * example.v[0], 1e-7);
  EXPECT_NEAR(row.lse, std::log(4.0), 1e-7);
  const double dot = example.dout[0] * row.out[0] + example.dout[1] * row.out[1];
  EXPECT_NEAR(oracle.dsink(0), -0.25 * (dot - example.dlse[0]), 1e-7);
}

TEST(Reference, RowsThatSeeNothingHaveTheSinkAsLse) {
  Example example(1, 4, 2, 1, 1, 3, 3, 1);
  example.sequences[0].mask.history_kind = HistoryKind::causal;  // rows 0 and 1 see nothing
  example.add_sink();
  example.sink[0] = 2.5f;
  example.dout.assign(example.dout.size(), 0);
  example.dlse = {1, 2, 0, 0};
  Reference<Float64> oracle(example.problem, example.sequences, example.tensors);
  EXPECT_EQ(oracle.forward_row(0, 0, 1).lse, 2.5);
  EXPECT_EQ(oracle.forward_row(0, 0, 1).out[0], 0);
  EXPECT_EQ(oracle.dsink(0), 3);                              // d lse / d sink is 1 there
  example.sink[0] = -std::numeric_limits<float>::infinity();  // as if there were none
  Reference<Float64> without(example.problem, example.sequences, example.tensors);
  EXPECT_EQ(without.forward_row(0, 0, 0).lse, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(without.dsink(0), 0);
}

TEST(Reference, BiasJoinsAfterTheSoftCap) {
  Example example(1, 1, 2, 1, 1, 1, 1, 1);
  std::fill(example.q.begin(), example.q.end(), 0.0f);
  example.problem.softcap_kind = SoftcapKind::tanh;
  example.problem.softcap = 0.1;  // would cap the bias
  example.add_bias({1, 1, 1, 2});
  example.bias[0] = std::log(3.0f);
  example.bias[1] = 0;
  const auto row = Reference<Float64>(example.problem, example.sequences, example.tensors).forward_row(0, 0, 0);
  EXPECT_NEAR(row.out[0], 0.75 * example.v[0] + 0.25 * example.v[1], 1e-7);
}

TEST(Reference, KeysWithABiasOfMinusInfinityAreNotThere) {
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  Example example(1, 2, 3, 1, 1, 2, 2, 1);
  example.add_bias({1, 1, 2, 3});
  std::fill(example.bias.begin(), example.bias.begin() + 3, minus_infinity);  // row 0 sees nothing
  example.bias[4] = minus_infinity;
  Reference<Float64> oracle(example.problem, example.sequences, example.tensors);
  EXPECT_EQ(oracle.forward_row(0, 0, 0).lse, minus_infinity);
  EXPECT_EQ(oracle.forward_row(0, 0, 0).out[1], 0);
  const auto gradients = oracle.backward();
  EXPECT_EQ(gradients.dq[0], 0);
  EXPECT_EQ(gradients.dbias[1], 0);
  EXPECT_EQ(gradients.dbias[4], 0);
  EXPECT_NE(gradients.dbias[3], 0);
  EXPECT_EQ(gradients.dv[2], 0);
  EXPECT_NE(gradients.dv[0], 0);
}

// Every broadcast form, with a sink: the gradients are those of finite differences, summed over what an extent stands for.
TEST(Reference, SinkAndBiasGradientsEqualFiniteDifferences) {
  for (const std::vector<i64>& shape :
       {std::vector<i64>{2, 4, 5, 6}, {2, 1, 5, 6}, {1, 4, 5, 6}, {1, 1, 5, 6}, {1, 1, 1, 6}, {2, 4, 1, 6}}) {
    Example example(2, 5, 6, 4, 2, 3, 2, 5);
    for (Sequence& s : example.sequences) s.mask.history_kind = HistoryKind::causal;
    example.problem.softcap_kind = SoftcapKind::tanh;
    example.problem.softcap = 0.9;
    example.add_sink();
    example.add_bias(shape);
    Reference<Float64> oracle(example.problem, example.sequences, example.tensors);
    const auto gradients = oracle.backward();
    ASSERT_EQ(gradients.dbias.size(), example.bias.size());
    for (std::size_t n = 0; n < example.bias.size(); n += 3)
      EXPECT_NEAR(gradients.dbias[n], example.slope(example.bias[n]), 2e-6) << n;
    for (std::size_t n = 0; n < example.sink.size(); ++n)
      EXPECT_NEAR(gradients.dsink[n], example.slope(example.sink[n]), 2e-6) << n;
    for (std::size_t n = 0; n < example.q.size(); n += 7)
      EXPECT_NEAR(gradients.dq[n], example.slope(example.q[n]), 2e-6) << n;
    for (std::size_t n = 0; n < example.k.size(); n += 5)
      EXPECT_NEAR(gradients.dk[n], example.slope(example.k[n]), 2e-6) << n;
    const i64 keys = shape[3], row = std::min<i64>(2, shape[2] - 1), head = shape[1] - 1, batch = shape[0] - 1;
    const auto dbias = oracle.dbias_row(batch, head, row);
    for (i64 j = 0; j < keys; ++j)
      EXPECT_NEAR(dbias[j], gradients.dbias[((batch * shape[1] + head) * shape[2] + row) * keys + j], 1e-14);
    EXPECT_NEAR(oracle.dsink(3), gradients.dsink[3], 1e-14);
  }
}

TEST(Reference, PagesAndNewKeysAreTheKeysTheyStandFor) {
  Example example(1, 3, 8, 2, 1, 3, 2, 7);  // keys 0 to 4 go to pages of 2, the last three to k_new
  example.sequences[0].mask.history_kind = HistoryKind::causal;
  const auto dense = Reference<Float64>(example.problem, example.sequences, example.tensors).forward();
  constexpr i32 kTable[] = {3, 0, 2};
  std::vector<float> k(4 * 2 * 3, NAN), v(4 * 2 * 2, NAN), k_new(9), v_new(6);
  for (i64 j = 0; j < 8; ++j) {
    for (i64 d = 0; d < 3; ++d)
      (j < 5 ? k[(kTable[j / 2] * 2 + j % 2) * 3 + d] : k_new[(j - 5) * 3 + d]) = example.k[j * 3 + d];
    for (i64 d = 0; d < 2; ++d)
      (j < 5 ? v[(kTable[j / 2] * 2 + j % 2) * 2 + d] : v_new[(j - 5) * 2 + d]) = example.v[j * 2 + d];
  }
  const auto tensor = [](std::vector<float>& data, i64 batch, i64 rows, i64 dim) {
    Tensor t{data.data(), DType::f32, 4, {batch, rows, 1, dim}, {rows * dim, dim, dim, 1}, {}};
    return t;
  };
  reference::Inputs inputs = example.tensors;
  inputs.k = tensor(k, 4, 2, 3);
  inputs.v = tensor(v, 4, 2, 2);
  inputs.k_new = tensor(k_new, 1, 3, 3);
  inputs.v_new = tensor(v_new, 1, 3, 2);
  example.problem.kv_layout = KvLayout::paged;
  example.problem.new_keys = true;
  example.problem.rows_kv = 2;
  Sequence& s = example.sequences[0];
  s.block_table = kTable;
  s.page_size = 2;
  s.seqlen_cached = 5;
  const auto paged = Reference<Float64>(example.problem, example.sequences, inputs).forward();
  EXPECT_EQ(dense.out, paged.out);
  EXPECT_EQ(dense.lse, paged.lse);
}

TEST(Reference, IntervalsAndListsDecideByHead) {
  Example example(1, 2, 4, 2, 1, 3, 2, 3);
  std::fill(example.q.begin(), example.q.end(), 0.0f);
  constexpr i32 kIntervals[] = {0, 1, 2, 3, 1, 1, 0, 4, /* head 1 */ 0, 0, 0, 0, 3, 4, 4, 4};
  Sequence& s = example.sequences[0];
  s.intervals = {kIntervals, 8, 4, 2};
  Reference<Float64> oracle(example.problem, example.sequences, example.tensors);
  EXPECT_NEAR(oracle.forward_row(0, 0, 0).out[0], (example.v[0] + example.v[2 * 2]) / 2, 1e-7);
  EXPECT_NEAR(oracle.forward_row(0, 0, 1).lse, std::log(4.0), 1e-15);
  EXPECT_TRUE(std::isinf(oracle.forward_row(0, 1, 0).lse));
  EXPECT_EQ(oracle.forward_row(0, 1, 1).out[1], example.v[3 * 2 + 1]);

  constexpr i64 kBegin[] = {0, 1, /* head 1 */ 1, 2};
  constexpr BlockEntry kEntries[] = {{0, BlockKind::diag}, {0, BlockKind::full}};
  s.intervals = {};
  s.blocks.block_m = s.blocks.block_n = 64;
  s.blocks.begin = kBegin;
  s.blocks.entries = kEntries;
  s.blocks.stride_head = 2;
  Reference<Float64> lists(example.problem, example.sequences, example.tensors);
  EXPECT_EQ(lists.forward_row(0, 0, 1).out[0], example.v[3 * 2]);  // row 1 stands at position 3
  EXPECT_NEAR(lists.forward_row(0, 1, 1).lse, std::log(4.0), 1e-15);
}

}  // namespace
}  // namespace iso
