// Merging attention over parts of the keys gives attention over all of them: values and gradients, against float64.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "core/reference.h"
#include "isoflash/isoflash.hpp"
#include "validate/tensor.h"
#include "validate/validate.h"

namespace iso {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> waves(std::size_t size, float step) {
  std::vector<float> values(size);
  for (std::size_t n = 0; n < size; ++n) values[n] = std::sin(step * static_cast<float>(n + 1));
  return values;
}

// A part of the keys: those from `begin` up to `end`, causally, or of these the ones in `intervals` (pairs begin, end).
struct Part {
  int begin, end;
  std::vector<i32> intervals = {};
};

// One batch entry of attention in float32 over `keys` keys; causal, the last query at the last key, unless its parts are
// intervals.
struct Attention {
  int rows, keys, heads_q, heads_kv, dim, dim_v;
  std::vector<float> q, k, v, dout, dlse;

  Attention(int num_rows, int num_keys, int hq, int hkv, int d, int dv)
      : rows(num_rows),
        keys(num_keys),
        heads_q(hq),
        heads_kv(hkv),
        dim(d),
        dim_v(dv),
        q(waves(size(rows, heads_q, dim), 0.91f)),
        k(waves(size(keys, heads_kv, dim), 0.37f)),
        v(waves(size(keys, heads_kv, dim_v), 0.53f)),
        dout(waves(size(rows, heads_q, dim_v), 0.29f)),
        dlse(waves(size(rows, heads_q, 1), 0.71f)) {
    for (float& x : q) x *= 3;  // so that weights differ
  }

  static std::size_t size(int a, int b, int c) { return static_cast<std::size_t>(a) * b * c; }
  isoflash::Tensor of_q(const std::vector<float>& x) const { return {x.data(), {1, rows, heads_q, dim}}; }
  isoflash::Tensor of_out(const std::vector<float>& x) const { return {x.data(), {1, rows, heads_q, dim_v}}; }
  isoflash::Tensor of_lse(const std::vector<float>& x) const { return {x.data(), {1, heads_q, rows}}; }
  // Keys [begin, end) of k, v or their gradients.
  isoflash::Tensor of_keys(const std::vector<float>& x, const Part& part, int d) const {
    return {x.data() + size(part.begin, heads_kv, d), {1, part.end - part.begin, heads_kv, d}};
  }
  isoflash::Problem problem(const Part& part, const std::vector<float>& out, const std::vector<float>& lse) const {
    isoflash::Problem p{
        .q = of_q(q), .k = of_keys(k, part, dim), .v = of_keys(v, part, dim_v), .out = of_out(out), .lse = of_lse(lse)};
    if (part.intervals.empty()) {
      p.mask = isoflash::Mask::causal();
      p.mask.query_offset = keys - rows - part.begin;  // positions count from the part's first key
    } else {
      const auto numbers = static_cast<std::int64_t>(part.intervals.size());
      p.row_intervals = {part.intervals.data(), {1, 1, rows, numbers}, {0, 0, 0, 1}};  // the same for all rows
    }
    return p;
  }
};

struct Gradients {
  std::vector<float> dq, dk, dv;
};

struct MergedResult {
  std::vector<float> out, lse;
  Gradients gradients;
};

void expect_ok(const isoflash::Result<void>& done) { ASSERT_TRUE(done) << done.error().message(); }

void add(const std::vector<float>& x, std::vector<float>& sum) {
  for (std::size_t n = 0; n < x.size(); ++n) sum[n] += x[n];
}

// Forward and backward of each part, merged.
MergedResult in_parts(const Attention& a, const std::vector<Part>& parts) {
  std::vector<std::vector<float>> out(parts.size(), std::vector<float>(a.dout.size())), dout = out;
  std::vector<std::vector<float>> lse(parts.size(), std::vector<float>(a.dlse.size())), dlse = lse;
  std::vector<isoflash::Tensor> outs, lses, douts, dlses;
  std::vector<isoflash::Result<isoflash::Plan>> plans;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const isoflash::Problem p = a.problem(parts[n], out[n], lse[n]);
    plans.push_back(isoflash::Plan::create(p, {.num_threads = 1}));
    EXPECT_TRUE(plans.back()) << plans.back().error().message();
    expect_ok(plans.back()->forward(p));
    outs.push_back(a.of_out(out[n]));
    lses.push_back(a.of_lse(lse[n]));
    douts.push_back(a.of_out(dout[n]));
    dlses.push_back(a.of_lse(dlse[n]));
  }
  MergedResult r{std::vector<float>(a.dout.size()),
                 std::vector<float>(a.dlse.size()),
                 {std::vector<float>(a.q.size()), std::vector<float>(a.k.size()), std::vector<float>(a.v.size())}};
  expect_ok(isoflash::merge({outs, lses, a.of_out(r.out), a.of_lse(r.lse)}));
  expect_ok(isoflash::merge_backward({.outs = outs,
                                      .lses = lses,
                                      .out = a.of_out(r.out),
                                      .lse = a.of_lse(r.lse),
                                      .dout = a.of_out(a.dout),
                                      .dlse = a.of_lse(a.dlse),
                                      .douts = douts,
                                      .dlses = dlses}));
  for (std::size_t n = 0; n < parts.size(); ++n) {
    std::vector<float> dq(a.q.size()), dk(a.k.size()), dv(a.v.size());
    expect_ok(plans[n]->backward({.q = a.of_q(a.q),
                                  .k = a.of_keys(a.k, parts[n], a.dim),
                                  .v = a.of_keys(a.v, parts[n], a.dim_v),
                                  .out = outs[n],
                                  .lse = lses[n],
                                  .dout = douts[n],
                                  .dlse = dlses[n],
                                  .dq = a.of_q(dq),
                                  .dk = a.of_keys(dk, parts[n], a.dim),
                                  .dv = a.of_keys(dv, parts[n], a.dim_v)}));
    add(dq, r.gradients.dq);
    add(dk, r.gradients.dk);
    add(dv, r.gradients.dv);
  }
  return r;
}

void expect_near(const char* name, const std::vector<float>& got, const std::vector<double>& truth) {
  ASSERT_EQ(got.size(), truth.size());
  for (std::size_t n = 0; n < got.size(); ++n) {
    if (std::isinf(truth[n])) {
      ASSERT_EQ(got[n], static_cast<float>(truth[n])) << name << "[" << n << "]";
    } else {
      ASSERT_NEAR(got[n], truth[n], 2e-5 * (1 + std::abs(truth[n]))) << name << "[" << n << "]";
    }
  }
}

// The merged parts are attention over all keys, in float64.
void expect_whole(const Attention& a, const std::vector<Part>& parts) {
  std::vector<float> out(a.dout.size()), lse(a.dlse.size());
  Part whole{0, a.keys};
  if (!parts[0].intervals.empty()) whole.intervals = {0, a.keys};
  const isoflash::Problem p = a.problem(whole, out, lse);
  const auto valid = validate_problem(isoflash::c_problem(p));
  ASSERT_TRUE(valid) << valid.error().message();
  BackwardTensors t;
  t.q = *read_tensor(p.q, "q");
  t.k = *read_tensor(p.k, "k");
  t.v = *read_tensor(p.v, "v");
  t.dout = *read_tensor(a.of_out(a.dout), "dout");
  t.dlse = *read_tensor(a.of_lse(a.dlse), "dlse");
  reference::Reference<reference::Float64> reference(valid->problem, valid->sequences, t);
  const auto forward = reference.forward();
  const auto backward = reference.backward();
  const MergedResult got = in_parts(a, parts);
  expect_near("out", got.out, forward.out);
  expect_near("lse", got.lse, forward.lse);
  expect_near("dq", got.gradients.dq, backward.dq);
  expect_near("dk", got.gradients.dk, backward.dk);
  expect_near("dv", got.gradients.dv, backward.dv);
}

// Parts that begin at `cuts`.
void expect_whole(const Attention& a, const std::vector<int>& cuts) {
  std::vector<Part> parts;
  for (std::size_t n = 0; n < cuts.size(); ++n) parts.push_back({cuts[n], n + 1 < cuts.size() ? cuts[n + 1] : a.keys});
  expect_whole(a, parts);
}

TEST(Merge, PartsMakeTheWhole) {
  const Attention a(20, 31, 4, 2, 16, 8);
  expect_whole(a, std::vector<int>{0});
  expect_whole(a, std::vector<int>{0, 13});
  expect_whole(a, std::vector<int>{0, 9, 22});
  expect_whole(a, std::vector<int>{0, 1, 2, 30});
}

// Early rows see nothing of the later parts, the first ones nothing at all; a part without any key is one, too.
TEST(Merge, RowsThatSeeNothing) {
  const Attention a(40, 30, 2, 1, 8, 24);
  expect_whole(a, std::vector<int>{0, 5, 25});
  expect_whole(a, std::vector<int>{0, 0, 30});
}

// Two and three parts of one set of keys, interleaved.
TEST(Merge, IntervalsOfTheSameKeys) {
  const Attention a(20, 40, 4, 2, 16, 8);
  const std::vector<i32> ends{0, 3, 9, 10, 11, 25, 40};
  const auto pairs = [&](std::initializer_list<int> which) {
    Part part{0, a.keys};
    for (const int n : which) part.intervals.insert(part.intervals.end(), {ends[n], ends[n + 1]});
    return part;
  };
  expect_whole(a, std::vector<Part>{pairs({0, 2, 4}), pairs({1, 3, 5})});
  expect_whole(a, std::vector<Part>{pairs({0, 5}), pairs({1, 2}), pairs({3, 4})});
}

TEST(Merge, WidestRows) { expect_whole(Attention(3, 20, 1, 1, 8, 256), std::vector<int>{0, 7}); }

RC_GTEST_PROP(Merge, AnyCutMakesTheWhole, ()) {
  const int heads_kv = *rc::gen::inRange(1, 3), heads_q = heads_kv * *rc::gen::inRange(1, 4);
  const Attention a(*rc::gen::inRange(1, 20), *rc::gen::inRange(1, 40), heads_q, heads_kv, *rc::gen::inRange(1, 20),
                    *rc::gen::inRange(1, 20));
  std::vector<int> cuts{0};
  for (int n = *rc::gen::inRange(0, 4); n > 0; --n) cuts.push_back(*rc::gen::inRange(cuts.back(), a.keys + 1));
  expect_whole(a, cuts);
  RC_ASSERT(!::testing::Test::HasFailure());
}

// --- conventions -------------------------------------------------------------------------------------------------------

// Parts of one head with rows of `dim` elements, packed: outs (rows, 1, dim), lses (1, rows).
struct Parts {
  std::size_t dim;
  std::vector<std::vector<float>> outs, lses;
  std::vector<float> out, lse;

  Parts(std::size_t width, std::vector<std::vector<float>> lse_values) : dim(width), lses(std::move(lse_values)) {
    for (std::size_t n = 0; n < lses.size(); ++n) outs.push_back(waves(lses[n].size() * dim, 0.3f + static_cast<float>(n)));
    out.assign(outs[0].size(), kNan);
    lse.assign(lses[0].size(), kNan);
  }
  isoflash::Tensor of_out(const std::vector<float>& x) const {
    return {x.data(), {static_cast<int>(lses[0].size()), 1, static_cast<int>(dim)}};
  }
  isoflash::Tensor of_lse(const std::vector<float>& x) const { return {x.data(), {1, static_cast<int>(lses[0].size())}}; }
  std::vector<isoflash::Tensor> all_outs() const {
    std::vector<isoflash::Tensor> t;
    for (const auto& x : outs) t.push_back(of_out(x));
    return t;
  }
  std::vector<isoflash::Tensor> all_lses() const {
    std::vector<isoflash::Tensor> t;
    for (const auto& x : lses) t.push_back(of_lse(x));
    return t;
  }
  void merge() { expect_ok(isoflash::merge({all_outs(), all_lses(), of_out(out), of_lse(lse)})); }
};

TEST(Merge, ConventionsOfRows) {
  // Rows: two parts; one sees nothing; none sees anything; NaN; +inf; NaN beside a part that sees nothing.
  Parts p(3, {{0, 1.5f, -kInfinity, kNan, kInfinity, kNan}, {0, -kInfinity, -kInfinity, 0, 0, -kInfinity}});
  p.outs[1][3 * 1] = kNan;  // of a part that saw no key: not read
  p.merge();
  for (int d = 0; d < 3; ++d) {
    EXPECT_FLOAT_EQ(p.out[d], (p.outs[0][d] + p.outs[1][d]) / 2) << "equal lse, equal weights";
    EXPECT_EQ(p.out[3 + d], p.outs[0][3 + d]) << "a part that saw nothing adds nothing";
    EXPECT_EQ(p.out[6 + d], 0.0f) << "nobody saw a key";
    for (int row = 3; row < 6; ++row)
      EXPECT_TRUE(std::isnan(p.out[row * 3 + d])) << "row " << row << " has a NaN or infinite lse, and must not hide it";
  }
  EXPECT_FLOAT_EQ(p.lse[0], std::log(2.0f));
  EXPECT_EQ(p.lse[1], 1.5f);
  EXPECT_EQ(p.lse[2], -kInfinity);
  for (int row = 3; row < 6; ++row) EXPECT_TRUE(std::isnan(p.lse[row])) << row;
}

TEST(Merge, LargeLseKeepsItsWeights) {
  Parts p(4, {{10000.0f}, {10001.0f}, {-3e38f}});
  p.merge();
  const double w = 1 / (1 + std::exp(1.0));
  for (int d = 0; d < 4; ++d) EXPECT_NEAR(p.out[d], w * p.outs[0][d] + (1 - w) * p.outs[1][d], 1e-6);
}

TEST(Merge, OnePartIsACopy) {
  Parts p(300, {{0.7f, -2, 5}});
  p.merge();
  EXPECT_EQ(p.out, p.outs[0]);
  EXPECT_EQ(p.lse, p.lses[0]);
}

TEST(Merge, InPlaceOfAnyPart) {
  for (std::size_t target = 0; target < 3; ++target) {
    Parts expected(300, {{0.7f, -2}, {1, 1}, {0, -kInfinity}}), p = expected;
    expected.merge();
    expect_ok(isoflash::merge({p.all_outs(), p.all_lses(), p.of_out(p.outs[target]), p.of_lse(p.lses[target])}));
    EXPECT_EQ(p.outs[target], expected.out);
    EXPECT_EQ(p.lses[target], expected.lse);
  }
}

TEST(Merge, LseIsOptional) {
  Parts p(3, {{0.5f}, {0.25f}}), with_lse = p;
  with_lse.merge();
  expect_ok(isoflash::merge({.outs = p.all_outs(), .lses = p.all_lses(), .out = p.of_out(p.out)}));
  EXPECT_EQ(p.out, with_lse.out);
  EXPECT_TRUE(std::isnan(p.lse[0])) << "lse was not given and must not be written";
}

TEST(Merge, NothingToDo) {
  const std::vector<isoflash::Tensor> outs{{static_cast<float*>(nullptr), {0, 2, 4}}};
  const std::vector<isoflash::Tensor> lses{{static_cast<float*>(nullptr), {2, 0}}};
  expect_ok(isoflash::merge({outs, lses, outs[0], lses[0]}));
  const std::vector<isoflash::Tensor> many{{static_cast<float*>(nullptr), {1000000000, 0, 1, 4}}};
  const std::vector<isoflash::Tensor> many_lses{{static_cast<float*>(nullptr), {1000000000, 1, 0}}};
  expect_ok(isoflash::merge({.outs = many, .lses = many_lses, .out = many[0]}));
}

// Every part in a layout and type of its own: transposed, backwards, expanded; the result in bfloat16.
TEST(Merge, AnyStridesAndTypes) {
  constexpr int kBatch = 2, kRows = 3, kHeads = 2, kDim = 5;
  const std::vector<float> a = waves(kBatch * kRows * kHeads * kDim, 0.3f), shared = waves(kDim, 0.9f);
  const std::vector<float> lse_a = waves(kBatch * kHeads * kRows, 0.7f), lse_b = waves(kHeads, 0.2f);
  std::vector<f16> half(a.size());
  for (std::size_t n = 0; n < a.size(); ++n) half[n] = to_f16(a[n] * 2);

  const isoflash::Extents shape{kBatch, kRows, kHeads, kDim}, lse_shape{kBatch, kHeads, kRows};
  const std::vector<isoflash::Tensor> outs{
      {a.data(), shape, {1, 2, 6, 12}},                                                   // transposed
      {shared.data(), shape, {0, 0, 0, 1}},                                               // expanded
      {half.data() + half.size() - 1, isoflash::DType::f16, shape, {-30, -10, -5, -1}}};  // backwards
  const std::vector<isoflash::Tensor> lses{
      {lse_a.data(), lse_shape}, {lse_b.data(), lse_shape, {0, 1, 0}}, {lse_a.data() + 11, lse_shape, {-6, -3, -1}}};
  std::vector<bf16> out(a.size() * 2);  // every other element
  std::vector<float> lse(lse_a.size());
  const isoflash::Tensor out_tensor(out.data(), isoflash::DType::bf16, shape, {60, 20, 10, 2});
  expect_ok(isoflash::merge({outs, lses, out_tensor, {lse.data(), lse_shape}}));

  for (int b = 0; b < kBatch; ++b) {
    for (int row = 0; row < kRows; ++row) {
      for (int head = 0; head < kHeads; ++head) {
        const int at = (b * kHeads + head) * kRows + row;
        const double w[] = {std::exp(double{lse_a[at]}), std::exp(double{lse_b[head]}), std::exp(double{lse_a[11 - at]})};
        const double sum = w[0] + w[1] + w[2];
        EXPECT_NEAR(lse[at], std::log(sum), 1e-6);
        for (int d = 0; d < kDim; ++d) {
          const int flat = ((b * kRows + row) * kHeads + head) * kDim + d;
          const double value = (w[0] * a[b + 2 * row + 6 * head + 12 * d] + w[1] * shared[d] +
                                w[2] * to_float(half[half.size() - 1 - flat])) /
                               sum;
          EXPECT_NEAR(to_float(out[2 * flat]), value, 0.004 * std::abs(value) + 1e-3) << flat;
          EXPECT_EQ(out[2 * flat + 1].bits, 0) << "between the elements nothing is written";
        }
      }
    }
  }
}

TEST(Merge, BackwardOfRowsThatSawNothing) {
  Parts p(3, {{1, -kInfinity, -kInfinity}, {-kInfinity, -kInfinity, 0}});
  p.outs[1][0] = p.outs[1][4] = kNan;  // of parts that saw no key
  p.merge();
  Parts gradients(3, {{9, 9, 9}, {9, 9, 9}});  // overwritten
  const std::vector<float> dout = waves(9, 0.4f), dlse{0.5f, 0.25f, 2};
  expect_ok(isoflash::merge_backward({.outs = p.all_outs(),
                                      .lses = p.all_lses(),
                                      .out = p.of_out(p.out),
                                      .lse = p.of_lse(p.lse),
                                      .dout = p.of_out(dout),
                                      .dlse = p.of_lse(dlse),
                                      .douts = gradients.all_outs(),
                                      .dlses = gradients.all_lses()}));
  for (int d = 0; d < 3; ++d) {
    EXPECT_EQ(gradients.outs[0][d], dout[d]) << "the only part that saw a key gets all";
    EXPECT_EQ(gradients.outs[1][d], 0.0f);
    EXPECT_EQ(gradients.outs[0][3 + d], 0.0f) << "nobody saw a key";
    EXPECT_EQ(gradients.outs[1][3 + d], 0.0f) << "nobody saw a key";
    EXPECT_EQ(gradients.outs[1][6 + d], dout[6 + d]);
  }
  EXPECT_EQ(gradients.lses[0], (std::vector<float>{0.5f, 0, 0}));
  EXPECT_EQ(gradients.lses[1], (std::vector<float>{0, 0, 2}));
}

TEST(Merge, BackwardWithoutDlse) {
  Parts p(2, {{0}, {0}});
  p.merge();
  Parts gradients = p;
  const std::vector<float> dout{1, -1};
  expect_ok(isoflash::merge_backward({.outs = p.all_outs(),
                                      .lses = p.all_lses(),
                                      .out = p.of_out(p.out),
                                      .lse = p.of_lse(p.lse),
                                      .dout = p.of_out(dout),
                                      .douts = gradients.all_outs(),
                                      .dlses = gradients.all_lses()}));
  const double difference = (p.outs[0][0] - p.outs[1][0]) - (p.outs[0][1] - p.outs[1][1]);
  EXPECT_NEAR(gradients.lses[0][0], difference / 4, 1e-6);
  EXPECT_NEAR(gradients.lses[1][0], -difference / 4, 1e-6);
}

TEST(Merge, InputsStayAsTheyAre) {
  Parts p(5, {{0.5f, 1}, {1, -kInfinity}}), before = p;
  p.merge();
  EXPECT_EQ(p.outs, before.outs);
  EXPECT_EQ(p.lses, before.lses);
}

}  // namespace
}  // namespace iso
