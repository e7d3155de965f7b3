// What the conformance cases do not reach: sequences too long for one pass of the backward, the two ways of the backward
// against each other, and the choice of the level. Everything else about the kernels is in tests/conformance.
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
  std::vector<float> q, k, v, out, lse, dout, dq, dk, dv;
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

// One float32 sequence of history + candidates.
Plan plan_of(i64 heads_q, i64 heads_kv, i64 dim, i32 history, i32 candidates, int threads) {
  Plan plan;
  Problem& p = plan.problem;
  p.batch = 1;
  p.num_heads_q = heads_q;
  p.num_heads_kv = heads_kv;
  p.head_dim = p.head_dim_v = dim;
  p.rows_q = p.rows_kv = history + candidates;
  p.scale = 0.5;
  Sequence s;
  s.seqlen_q = s.seqlen_kv = s.slot_q = s.slot_kv = history + candidates;
  s.mask = {.seqlen_kv = s.seqlen_kv,
            .history_end_slot = history,
            .history_end = history,
            .candidate_begin = history,
            .candidate_end = history + candidates,
            .candidate_group_size = 3,
            .history_kind = HistoryKind::window,
            .window_left = 200,
            .window_right = 5};
  plan.sequences = {s};
  plan.num_threads = threads;
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
  const std::size_t size = std::max(plan.forward_workspace, plan.backward_workspace);
  void* const workspace = std::aligned_alloc(64, (size + 63) / 64 * 64);
  std::memset(workspace, 0xff, size);  // NaN
  forward(plan, {t.q, t.k, t.v, t.out, t.lse}, workspace);
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
  const Plan plan = plan_of(2, 1, 8, kHistory, kCandidates, 1);
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

// One worker takes one pass, sixteen take two (backward.cpp): the same bits.
TEST(Cpu, OnePassAndTwoPassesGiveTheSameBits) {
  Buffers one, two;
  run(plan_of(4, 2, 24, 700, 50, 1), one);
  run(plan_of(4, 2, 24, 700, 50, 16), two);
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(one.out, two.out));
  EXPECT_TRUE(same(one.lse, two.lse));
  EXPECT_TRUE(same(one.dq, two.dq));
  EXPECT_TRUE(same(one.dk, two.dk));
  EXPECT_TRUE(same(one.dv, two.dv));
}

TEST(Cpu, MemoryDoesNotGrowWithTheSequence) {
  const Plan longer = plan_of(2, 1, 64, 100000, 64, 1), shorter = plan_of(2, 1, 64, 10000, 64, 1);
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
