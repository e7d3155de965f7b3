// What the conformance cases do not reach: sequences too long for one pass of the backward, the two ways of the backward
// against each other, masks said in three ways, and the choice of the level. Everything else about the kernels is in
// tests/conformance.
#include "cpu/cpu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "core/reference.h"
#include "cpu/tiling.h"

namespace iso::cpu {
namespace {

struct Buffers {
  std::vector<float> q, k, v, out, lse, dout, dq, dk, dv, bias, dbias, sink, dsink;
  BackwardTensors tensors;
};

Tensor tensor_of(std::vector<float>& data, std::vector<i64> shape, std::mt19937* random) {
  Tensor t;
  t.rank = static_cast<i32>(shape.size());
  i64 count = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.shape[axis] = shape[static_cast<std::size_t>(axis)];
    t.strides[axis] = count;
    count *= t.shape[axis];
  }
  data.assign(static_cast<std::size_t>(count), std::nanf(""));
  if (random != nullptr)
    for (float& x : data) x = static_cast<float>(static_cast<int>((*random)() % 2001) - 1000) / 1000.0f;
  t.data = data.data();
  return t;
}

// How a plan says who sees whom.
enum class Said { as_mask, as_intervals, as_blocks };

// The mask of s as explicit intervals.
void say_as_intervals(Plan& plan, Sequence& s) {
  constexpr i32 kMost = 3;
  std::vector<i32>& data = plan.mask_arrays.intervals;
  for (i32 i = 0; i < s.seqlen_q; ++i) {
    const RowIntervals seen = row_intervals(s.mask, i + s.mask.query_offset);
    for (i32 n = 0; n < kMost; ++n)
      for (const i32 x : {n < seen.count ? seen.at[n].begin : s.seqlen_kv, n < seen.count ? seen.at[n].end : s.seqlen_kv})
        data.push_back(x);
  }
  s.intervals = {data.data(), 0, 2 * kMost, kMost};
}

// The mask of s as block lists; tiles of candidates become `diag` if these stand alone.
void say_as_blocks(Plan& plan, Sequence& s) {
  constexpr i32 kBlock = 128;
  const i32 blocks = ceil_div(s.seqlen_q, kBlock);
  for (i32 m = 0; m < blocks; ++m) {
    plan.mask_arrays.block_begin.push_back(static_cast<i64>(plan.mask_arrays.block_entries.size()));
    const Interval queries{m * kBlock, min_of((m + 1) * kBlock, s.seqlen_q)};
    for (i32 n = 0; n < blocks; ++n) {
      const TileClass seen = classify_tile(s.mask, queries, {n * kBlock, min_of((n + 1) * kBlock, s.seqlen_kv)});
      if (seen == TileClass::skip) continue;
      const bool alone = n == m && queries.begin >= s.mask.candidate_begin && s.mask.candidate_group_size == 1;
      const BlockKind kind = seen == TileClass::full ? BlockKind::full : alone ? BlockKind::diag : BlockKind::mask;
      plan.mask_arrays.block_entries.push_back({n, kind});
    }
  }
  plan.mask_arrays.block_begin.push_back(static_cast<i64>(plan.mask_arrays.block_entries.size()));
  s.blocks.block_m = s.blocks.block_n = kBlock;
  s.blocks.begin = plan.mask_arrays.block_begin.data();
  s.blocks.entries = plan.mask_arrays.block_entries.data();
}

struct Options {
  i64 heads_q = 2, heads_kv = 1, dim = 8;
  i32 history = 700, candidates = 50, group = 3;
  int threads = 1, num_splits = 1;
  Said said = Said::as_mask;
  bool bias_and_sink = false;
};

// One float32 sequence of history + candidates.
Plan plan_of(const Options& options) {
  Plan plan;
  Problem& p = plan.problem;
  p.batch = 1;
  p.num_heads_q = options.heads_q;
  p.num_heads_kv = options.heads_kv;
  p.head_dim = p.head_dim_v = options.dim;
  p.rows_q = p.rows_kv = options.history + options.candidates;
  p.scale = 0.5;
  p.bias = p.sink = options.bias_and_sink;
  Sequence s;
  s.seqlen_q = s.seqlen_kv = s.seqlen_cached = s.slot_q = s.slot_kv = options.history + options.candidates;
  s.mask = {.seqlen_kv = s.seqlen_kv,
            .history_end_slot = options.history,
            .history_end = options.history,
            .candidate_begin = options.history,
            .candidate_end = options.history + options.candidates,
            .candidate_group_size = options.group,
            .history_kind = HistoryKind::window,
            .window_left = 200,
            .window_right = 5};
  if (options.said == Said::as_intervals) say_as_intervals(plan, s);
  if (options.said == Said::as_blocks) say_as_blocks(plan, s);
  plan.sequences = {s};
  plan.num_threads = options.threads;
  plan.num_splits = options.num_splits;
  prepare(plan);
  return plan;
}

void run(const Plan& plan, Buffers& b) {
  std::mt19937 random(7);
  const Problem& p = plan.problem;
  const std::vector<i64> q{1, p.rows_q, p.num_heads_q, p.head_dim}, kv{1, p.rows_kv, p.num_heads_kv, p.head_dim};
  BackwardTensors& t = b.tensors;
  t.q = tensor_of(b.q, q, &random);
  t.k = tensor_of(b.k, kv, &random);
  t.v = tensor_of(b.v, kv, &random);
  t.dout = tensor_of(b.dout, q, &random);
  t.out = tensor_of(b.out, q, nullptr);
  t.lse = tensor_of(b.lse, {1, p.num_heads_q, p.rows_q}, nullptr);
  t.dq = tensor_of(b.dq, q, nullptr);
  t.dk = tensor_of(b.dk, kv, nullptr);
  t.dv = tensor_of(b.dv, kv, nullptr);
  if (p.bias) {
    t.bias = tensor_of(b.bias, {1, 1, p.rows_q, p.rows_kv}, &random);
    t.dbias = tensor_of(b.dbias, {1, 1, p.rows_q, p.rows_kv}, nullptr);
  }
  if (p.sink) {
    t.sink = tensor_of(b.sink, {p.num_heads_q}, &random);
    t.dsink = tensor_of(b.dsink, {p.num_heads_q}, nullptr);
  }
  const std::size_t size = std::max(plan.forward_workspace, plan.backward_workspace);
  void* const workspace = std::aligned_alloc(64, (size + 63) / 64 * 64);
  std::memset(workspace, 0xff, size);  // NaN
  ForwardTensors f;
  f.q = t.q, f.k = t.k, f.v = t.v, f.out = t.out, f.lse = t.lse, f.sink = t.sink, f.bias = t.bias;
  forward(plan, f, workspace);
  std::memset(workspace, 0xff, size);
  backward(plan, t, workspace);
  std::free(workspace);
}

double worst(const std::vector<double>& truth, const float* got) {
  double error = 0.0;
  for (std::size_t n = 0; n < truth.size(); ++n) {
    const double difference = std::abs(truth[n] - got[n]);
    error = difference <= error ? error : difference;  // NaN stays
  }
  return error;
}

TEST(Cpu, SequencesBeyondOnePassAreRight) {
  constexpr i32 kHistory = 4200, kCandidates = 7;
  const Plan plan = plan_of({.history = kHistory, .candidates = kCandidates});
  Buffers b;
  run(plan, b);
  reference::Reference<reference::Float64> truth(plan.problem, plan.sequences, b.tensors);
  for (const i32 row : {0, 1, 511, 512, 4095, 4096, kHistory - 1, kHistory, kHistory + 3, kHistory + 6}) {
    for (i64 head = 0; head < 2; ++head) {
      const std::size_t at = static_cast<std::size_t>((row * 2 + head) * 8);
      EXPECT_LT(worst(truth.forward_row(0, head, row).out, &b.out[at]), 1e-5) << "out, row " << row << ", head " << head;
      EXPECT_LT(worst(truth.dq_row(0, head, row), &b.dq[at]), 1e-4) << "dq, row " << row << ", head " << head;
    }
    const auto gradients = truth.dkv_row(0, 0, row);
    EXPECT_LT(worst(gradients.dk, &b.dk[static_cast<std::size_t>(row * 8)]), 1e-3) << "dk, key " << row;
    EXPECT_LT(worst(gradients.dv, &b.dv[static_cast<std::size_t>(row * 8)]), 1e-3) << "dv, key " << row;
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One worker takes one pass, sixteen take two (backward.cpp): the same bits.
TEST(Cpu, OnePassAndTwoPassesGiveTheSameBits) {
  for (const Said said : {Said::as_mask, Said::as_intervals, Said::as_blocks}) {
    for (const bool bias_and_sink : {false, true}) {
      SCOPED_TRACE(testing::Message() << "said " << static_cast<int>(said) << ", bias and sink " << bias_and_sink);
      Options options{.heads_q = 4, .heads_kv = 2, .dim = 24, .said = said, .bias_and_sink = bias_and_sink};
      Buffers one, two;
      run(plan_of(options), one);
      options.threads = 16;
      run(plan_of(options), two);
      EXPECT_TRUE(same_bits(one.out, two.out));
      EXPECT_TRUE(same_bits(one.lse, two.lse));
      EXPECT_TRUE(same_bits(one.dq, two.dq));
      EXPECT_TRUE(same_bits(one.dk, two.dk));
      EXPECT_TRUE(same_bits(one.dv, two.dv));
      EXPECT_TRUE(same_bits(one.dbias, two.dbias));
      EXPECT_TRUE(same_bits(one.dsink, two.dsink));
    }
  }
}

// The three ways to say one mask take different roads through the tiles; what they compute is one thing.
TEST(Cpu, MasksSaidInThreeWaysAgree) {
  for (const i32 group : {1, 3, 40}) {
    Buffers mask;
    run(plan_of({.group = group, .bias_and_sink = true}), mask);
    for (const Said said : {Said::as_intervals, Said::as_blocks}) {
      SCOPED_TRACE(testing::Message() << "said " << static_cast<int>(said) << ", groups of " << group);
      Buffers other;
      run(plan_of({.group = group, .said = said, .bias_and_sink = true}), other);
      const auto near = [](const std::vector<float>& a, const std::vector<float>& b, double bound) {
        return worst(std::vector<double>(a.begin(), a.end()), b.data()) < bound;
      };
      EXPECT_TRUE(near(mask.out, other.out, 1e-6));
      EXPECT_TRUE(near(mask.lse, other.lse, 1e-5));
      EXPECT_TRUE(near(mask.dq, other.dq, 1e-5));
      EXPECT_TRUE(near(mask.dk, other.dk, 1e-4));
      EXPECT_TRUE(near(mask.dv, other.dv, 1e-4));
      EXPECT_TRUE(near(mask.dbias, other.dbias, 1e-5));
      EXPECT_TRUE(near(mask.dsink, other.dsink, 1e-4));
    }
  }
}

// Parts without keys, more parts than key tiles, rows that see one part only.
TEST(Cpu, PartsOfTheKeysMergeToTheWhole) {
  Buffers whole;
  run(plan_of({}), whole);
  for (const int num_splits : {2, 5, 64}) {
    Buffers parts;
    run(plan_of({.threads = 3, .num_splits = num_splits}), parts);
    EXPECT_LT(worst(std::vector<double>(whole.out.begin(), whole.out.end()), parts.out.data()), 1e-6) << num_splits;
    EXPECT_LT(worst(std::vector<double>(whole.lse.begin(), whole.lse.end()), parts.lse.data()), 1e-5) << num_splits;
  }
}

TEST(Cpu, MemoryDoesNotGrowWithTheSequence) {
  const Plan longer = plan_of({.dim = 64, .history = 100000}), shorter = plan_of({.dim = 64, .history = 10000});
  EXPECT_EQ(longer.forward_workspace, shorter.forward_workspace);
  EXPECT_EQ(longer.backward_workspace, shorter.backward_workspace);
}

TEST(Cpu, LevelFollowsTheEnvironment) {
  const char* const before = std::getenv("ISOFLASH_CPU_LEVEL");
  const std::string kept = before == nullptr ? "" : before;
  const char* rejected = nullptr;
  setenv("ISOFLASH_CPU_LEVEL", "scalar", 1);
  EXPECT_STREQ(level_in_use(&rejected).name, "scalar");
  EXPECT_EQ(rejected, nullptr);
  setenv("ISOFLASH_CPU_LEVEL", "quantum", 1);
  EXPECT_TRUE(level_in_use(&rejected).available());
  EXPECT_STREQ(rejected, "quantum");
  if (kept.empty())
    unsetenv("ISOFLASH_CPU_LEVEL");
  else
    setenv("ISOFLASH_CPU_LEVEL", kept.c_str(), 1);
}

TEST(Cpu, LowestLevelRunsEverywhere) {
  ASSERT_FALSE(levels().empty());
  EXPECT_STREQ(levels().front().name, "scalar");
  EXPECT_TRUE(levels().front().available());
}

}  // namespace
}  // namespace iso::cpu
