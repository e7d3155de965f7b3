// Known faults: threads, determinism, memory, partial gradients, processes.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R134_plans_and_calls_from_many_threads) {
  const auto make = [](int n) {
    auto a = std::make_unique<Attention>(
        n % 2 ? ISOFLASH_F32 : ISOFLASH_BF16,
        Sizes{.batch = 1 + n % 3, .seqlen_q = 3 + 5 * n, .seqlen_kv = 3 + 5 * n, .num_heads_q = 2, .head_dim = 8 + n});
    a->session(1, 2 + 2 * n, 3 * n, 1 + n % 4);
    a->fill_noise(n);
    return a;
  };
  constexpr int kShapes = 20;
  std::vector<std::unique_ptr<Attention>> alone;
  for (int n = 0; n < kShapes; ++n) {
    alone.push_back(make(n));
    alone.back()->run();
    expect_right(*alone.back());
  }
  std::vector<std::thread> threads;
  std::vector<int> different(8, 0);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int call = 0; call < 40; ++call) {
        const auto a = make((7 * t + call) % kShapes);
        a->run();
        const Attention& right = *alone[(7 * t + call) % kShapes];
        for (const auto x : {&Attention::out, &Attention::lse, &Attention::dq, &Attention::dk, &Attention::dv})
          different[t] += ((*a).*x).bytes() != (right.*x).bytes();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 8; ++t)
    EXPECT_EQ(different[t], 0) << "thread " << t << ": results that differ from the single-thread run";
}

TEST(KnownFaults, R134_one_plan_from_many_threads) {
  Attention a(ISOFLASH_BF16, {40, 0, 77, 5}, {40, 0, 77, 5}, {.num_heads_q = 4, .num_heads_kv = 2, .head_dim = 32});
  a.fill_noise();
  a.run();
  expect_right(a);
  PlanHandle plan;
  ASSERT_EQ(plan_refusal(a.problem, &plan).id, 0);
  std::vector<std::thread> threads;
  std::vector<int> different(8, 0);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Attention mine(ISOFLASH_BF16, {40, 0, 77, 5}, {40, 0, 77, 5}, {.num_heads_q = 4, .num_heads_kv = 2, .head_dim = 32});
      mine.fill_noise();
      for (int call = 0; call < 25; ++call) {
        mine.forward(plan.get());
        mine.backward(plan.get());
        for (const auto x : {&Attention::out, &Attention::lse, &Attention::dq, &Attention::dk, &Attention::dv})
          different[t] += (mine.*x).bytes() != (a.*x).bytes();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 8; ++t) EXPECT_EQ(different[t], 0) << "thread " << t;
}

TEST(KnownFaults, R136_empty_keys_in_any_order) {
  for (int repeat = 0; repeat < 25; ++repeat) {
    Attention a(ISOFLASH_BF16, {4, 300, 5, 17, 6}, {0, 300, 0, 17, 0}, {.head_dim = 64});
    a.num_threads = 1 + repeat % 4;
    a.fill_noise();
    a.run();
    if (repeat == 0) expect_right(a);
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(a.lse_of(0, 0, i), -kInf);
  }
}

// A ranker's request alone, with other requests, with other threads: not one bit may change.
TEST(KnownFaults, R143_neighbours_change_my_result) {
  const int64_t mine = 90;
  const auto make = [&](int before, int after, int threads) {
    std::vector<int32_t> lengths(before, 61);
    lengths.push_back(mine);
    lengths.insert(lengths.end(), after, 33);
    auto a = std::make_unique<Attention>(ISOFLASH_BF16, lengths, lengths,
                                         Sizes{.num_heads_q = 4, .num_heads_kv = 2, .head_dim = 32});
    std::vector<int32_t> history(lengths);
    for (int32_t& h : history) h -= 30;
    a->mask().history_len.values = a->int_array(history);
    a->mask().num_candidates.value = 30;
    a->visible = [=, a = a.get()](int64_t b, int64_t i, int64_t j) { return j < a->length_kv[b] - 30 || j == i; };
    a->fill_noise(before + 100);
    for (Buffer* x : {&a->q, &a->k, &a->v, &a->dout})  // my rows hold the same numbers in every batch
      for (int64_t i = 0; i < mine; ++i)
        for (int64_t h = 0; h < x->shape()[1]; ++h)
          for (int64_t d = 0; d < 32; ++d) x->set({a->begin_q[before] + i, h, d}, noise(x - &a->q, (i * 4 + h) * 32 + d));
    a->num_threads = threads;
    a->run();
    return a;
  };
  const auto alone = make(0, 0, 1);
  expect_right(*alone);
  for (const auto& [before, after, threads] : {std::tuple{0, 0, 3}, {1, 0, 2}, {3, 60, 2}, {200, 311, 2}}) {
    SCOPED_TRACE(std::to_string(before) + " requests before mine, " + std::to_string(after) + " after");
    const auto batch = make(before, after, threads);
    const int64_t begin = batch->begin_q[before];
    for (const auto x : {&Attention::out, &Attention::dq, &Attention::dk, &Attention::dv}) {
      int64_t different = 0;
      ((*alone).*x).for_each([&](Index i) {
        different += ((*alone).*x).get(i) != ((*batch).*x).get({begin + i[0], i[1], i[2]});
      });
      EXPECT_EQ(different, 0);
    }
  }
}

// Candidates in another order give the same outputs in that order.
TEST(KnownFaults, R143_order_of_the_candidates) {
  const Sizes sizes{.seqlen_q = 120, .seqlen_kv = 120, .num_heads_q = 2, .num_heads_kv = 1, .head_dim = 64};
  for (isoflash_dtype dtype : {ISOFLASH_F32, ISOFLASH_BF16}) {
    Attention a(dtype, sizes), b(dtype, sizes);
    for (Attention* x : {&a, &b}) x->session(0, 80, 40), x->fill_noise();
    const auto from = [](int64_t i) { return i < 80 ? i : 199 - i; };
    for (const auto x : {&Attention::q, &Attention::k, &Attention::v, &Attention::dout})
      (b.*x).fill([&](Index i) { return (a.*x).get({0, from(i[1]), i[2], i[3]}); });
    a.run();
    b.run();
    for (const auto x : {&Attention::out, &Attention::dq}) {
      int64_t different = 0;
      (b.*x).for_each([&](Index i) { different += (b.*x).get(i) != (a.*x).get({0, from(i[1]), i[2], i[3]}); });
      EXPECT_EQ(different, 0) << "a candidate's result depends on its place among the candidates";
    }
  }
}

TEST(KnownFaults, R155_only_some_gradients_wanted) {
  Attention a(ISOFLASH_BF16,
              {.batch = 2, .seqlen_q = 65, .seqlen_kv = 65, .num_heads_q = 4, .num_heads_kv = 2, .head_dim = 32});
  a.causal();
  a.fill_noise();
  a.run();
  expect_right(a);
  PlanHandle plan;
  ASSERT_EQ(plan_refusal(a.problem, &plan).id, 0);
  for (int wanted = 1; wanted < 8; ++wanted) {
    SCOPED_TRACE(wanted);
    Buffer dq(a.dtype, a.dq.shape()), dk(a.dtype, a.dk.shape()), dv(a.dtype, a.dv.shape());
    isoflash_backward_args args;
    isoflash_backward_args_init(&args);
    args.q = a.q.tensor(), args.k = a.k.tensor(), args.v = a.v.tensor(), args.out = a.out.tensor(),
    args.lse = a.lse.tensor();
    args.dout = a.dout.tensor();
    if (wanted & 1) args.dq = dq.tensor();
    if (wanted & 2) args.dk = dk.tensor();
    if (wanted & 4) args.dv = dv.tensor();
    Bytes workspace(isoflash_backward_workspace_size(plan.get()), 0xFF);
    args.workspace = workspace.data(), args.workspace_size = workspace.size();
    const ErrorHandle error(isoflash_error_create());
    ASSERT_EQ(isoflash_backward(plan.get(), &args, error.get()), ISOFLASH_OK) << isoflash_error_message(error.get());
    if (wanted & 1) expect_same_bits(dq, a.dq, "dq");
    if (wanted & 2) expect_same_bits(dk, a.dk, "dk");
    if (wanted & 4) expect_same_bits(dv, a.dv, "dv");
  }
}

TEST(KnownFaults, R170_memory_grows_with_the_square_of_the_length) {
  const auto workspace = [](int64_t batch, int64_t seqlen) {
    Attention a(
        ISOFLASH_F32,
        {.batch = batch, .seqlen_q = seqlen, .seqlen_kv = seqlen, .num_heads_q = 3, .num_heads_kv = 3, .head_dim = 8});
    a.window(5, 5);
    a.describe();
    PlanHandle plan;
    EXPECT_EQ(plan_refusal(a.problem, &plan).id, 0);
    return std::max(isoflash_forward_workspace_size(plan.get()), isoflash_backward_workspace_size(plan.get()));
  };
  const size_t small = workspace(1, 2500), large = workspace(1, 25000);
  EXPECT_LE(large, 11 * small) << "ten times the length must not need more than ten times the workspace";
  EXPECT_LE(large, size_t{25000} * 3 * 8 * sizeof(float) * 8) << "a small multiple of the outputs";

  Attention a(ISOFLASH_F32,
              {.batch = 2, .seqlen_q = 25000, .seqlen_kv = 25000, .num_heads_q = 3, .num_heads_kv = 3, .head_dim = 8});
  a.window(5, 5);
  a.fill_noise();
  a.describe();
  PlanHandle plan;
  ASSERT_EQ(plan_refusal(a.problem, &plan).id, 0);
  const auto peak_bytes = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024;
  };
  const Bytes copies_of_inputs(6 * a.q.bytes().size(), 1);  // what forward() and backward() of the fixture hold besides
  const double before = peak_bytes();
  a.forward(plan.get());
  a.backward(plan.get());
  EXPECT_LT(peak_bytes() - before, 100e6) << "the scores alone would be 15 GB";
}

TEST(KnownFaults, Unnumbered_fork_after_the_first_call) {
  Attention a(ISOFLASH_F32, {.batch = 4, .seqlen_q = 100, .seqlen_kv = 100, .head_dim = 16});
  a.fill_noise();
  a.run();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // a child that waits for threads it does not have must not hang the test
    Attention b(ISOFLASH_F32, a.sizes);
    b.fill_noise();
    b.run();
    _exit(b.out.bytes() == a.out.bytes() && b.dk.bytes() == a.dk.bytes() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "the child hung or crashed: signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child's results differ";
}

}  // namespace
}  // namespace iso::known_faults
