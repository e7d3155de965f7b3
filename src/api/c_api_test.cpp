// What the C ABI accepts, what comes out, and that nothing a caller writes into a descriptor can crash it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

#include "base/compile.h"
#include "support/example_problem.h"

namespace iso {
namespace {

using test::ExampleProblem;

struct PlanHandle {
  explicit PlanHandle(const isoflash_problem& problem, int num_threads = 0) {
    isoflash_plan_options options;
    isoflash_plan_options_init(&options);
    options.num_threads = num_threads;
    isoflash_error* error = isoflash_error_create();
    status = isoflash_plan_create(&problem, &options, &plan, error);
    message = isoflash_error_message(error);
    isoflash_error_destroy(error);
  }
  ~PlanHandle() { isoflash_plan_destroy(plan); }
  PlanHandle(const PlanHandle&) = delete;

  isoflash_plan* plan = nullptr;
  isoflash_status status = 0;
  std::string message;
};

float* floats(const isoflash_tensor& t) { return static_cast<float*>(t.data); }

i64 elements(const isoflash_tensor& t) {
  i64 count = 1;
  for (i32 axis = 0; axis < t.rank; ++axis) count *= t.shape[axis];
  return count;
}

// Different numbers in every element of contiguous float tensors.
void fill(std::initializer_list<isoflash_tensor> tensors) {
  u32 state = 1;
  for (const isoflash_tensor& t : tensors)
    for (i64 n = 0; n < elements(t); ++n) {
      state = state * 1664525u + 1013904223u;
      floats(t)[n] = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
    }
}

TEST(CApi, EmptyProblemsAreLegal) {
  ExampleProblem no_batch;
  for (isoflash_tensor* t :
       {&no_batch.problem.q, &no_batch.problem.k, &no_batch.problem.v, &no_batch.problem.out, &no_batch.problem.lse}) {
    t->shape[0] = 0;
    t->data = nullptr;
  }
  ExampleProblem no_heads;
  no_heads.problem.q.shape[2] = no_heads.problem.out.shape[2] = no_heads.problem.lse.shape[1] = 0;
  ExampleProblem no_rows;
  no_rows.problem.q.shape[1] = no_rows.problem.out.shape[1] = no_rows.problem.lse.shape[2] = 0;
  ExampleProblem no_sequence = ExampleProblem::packed({0}, {0});
  for (ExampleProblem* e : {&no_batch, &no_heads, &no_rows, &no_sequence}) {
    const PlanHandle handle(e->problem);
    ASSERT_EQ(handle.status, 0) << handle.message;
    const isoflash_forward_args forward = e->forward_args(handle.plan);
    EXPECT_EQ(isoflash_forward(handle.plan, &forward, nullptr), 0);
    isoflash_backward_args backward = e->backward_args(handle.plan);
    fill({backward.dk, backward.dv});
    EXPECT_EQ(isoflash_backward(handle.plan, &backward, nullptr), 0);
    for (const isoflash_tensor& t : {backward.dk, backward.dv})
      for (i64 n = 0; n < elements(t); ++n) ASSERT_EQ(floats(t)[n], 0) << "no query, no gradient";
  }
}

// Tensors without elements may have any number of heads: work that is counted in heads would never end.
TEST(CApi, EmptyProblemsWithManyHeadsEnd) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const auto tensor = [](std::int64_t seqlen, std::int64_t heads) {
    isoflash_tensor t;
    const std::int64_t shape[] = {1, seqlen, heads, 8};
    isoflash_tensor_contiguous(&t, nullptr, ISOFLASH_F32, 4, shape);
    return t;
  };
  for (const auto& [seqlen_q, heads_q] : {std::pair<std::int64_t, std::int64_t>{100, 0}, {0, kMany}}) {
    isoflash_problem problem;
    isoflash_problem_init(&problem);
    problem.q = problem.out = tensor(seqlen_q, heads_q);
    problem.k = problem.v = tensor(0, kMany);
    const std::int64_t lse_shape[] = {1, heads_q, seqlen_q};
    isoflash_tensor_contiguous(&problem.lse, nullptr, ISOFLASH_F32, 3, lse_shape);
    isoflash_plan* plan = nullptr;
    ASSERT_EQ(isoflash_plan_create(&problem, nullptr, &plan, nullptr), ISOFLASH_OK);

    std::vector<std::byte> memory(std::max(isoflash_forward_workspace_size(plan), isoflash_backward_workspace_size(plan)) +
                                  64);
    void* const workspace = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    isoflash_forward_args forward;
    isoflash_forward_args_init(&forward);
    forward.q = problem.q, forward.k = problem.k, forward.v = problem.v, forward.out = problem.out;
    forward.workspace = workspace, forward.workspace_size = memory.size() - 64;
    EXPECT_EQ(isoflash_forward(plan, &forward, nullptr), ISOFLASH_OK);
    isoflash_backward_args backward;
    isoflash_backward_args_init(&backward);
    backward.q = backward.dq = problem.q, backward.k = backward.dk = problem.k, backward.v = backward.dv = problem.v;
    backward.out = backward.dout = problem.out, backward.lse = problem.lse;
    backward.workspace = workspace, backward.workspace_size = memory.size() - 64;
    EXPECT_EQ(isoflash_backward(plan, &backward, nullptr), ISOFLASH_OK);
    isoflash_plan_destroy(plan);
  }
}

TEST(CApi, OneKeyGivesItsValue) {
  ExampleProblem e;
  fill({e.problem.q, e.problem.k, e.problem.v});
  e.problem.mask.history_end.value = 1;
  e.problem.mask.query_offset.value = 0;
  e.problem.seqused_q = e.arena.int32({1, 0});
  const PlanHandle handle(e.problem);
  ASSERT_EQ(handle.status, 0) << handle.message;
  EXPECT_EQ(isoflash_plan_visible_pairs(handle.plan), 1);
  fill({e.problem.out, e.problem.lse});
  const isoflash_forward_args args = e.forward_args(handle.plan);
  ASSERT_EQ(isoflash_forward(handle.plan, &args, nullptr), 0);
  for (int head = 0; head < 4; ++head)
    for (int d = 0; d < 4; ++d) EXPECT_FLOAT_EQ(floats(e.problem.out)[head * 4 + d], floats(e.problem.v)[head / 2 * 4 + d]);
  for (i64 n = 16; n < elements(e.problem.out); ++n) ASSERT_EQ(floats(e.problem.out)[n], 0) << "rows not in use are zero";
  EXPECT_EQ(floats(e.problem.lse)[1], -std::numeric_limits<float>::infinity()) << "a row that sees nothing";
}

TEST(CApi, GradientsMayBeSlicesOfOneBuffer) {
  // q, k, v and their gradients as slices of (rows, 64) buffers, the way a fused projection leaves them.
  ExampleProblem e = ExampleProblem::packed({0, 3, 3, 7}, {0, 3, 3, 7});
  fill({e.problem.q, e.problem.k, e.problem.v});
  const PlanHandle handle(e.problem);
  ASSERT_EQ(handle.status, 0) << handle.message;
  const isoflash_forward_args forward = e.forward_args(handle.plan);
  ASSERT_EQ(isoflash_forward(handle.plan, &forward, nullptr), 0);
  isoflash_backward_args apart = e.backward_args(handle.plan);
  fill({apart.dout, apart.dlse});
  ASSERT_EQ(isoflash_backward(handle.plan, &apart, nullptr), 0);

  const isoflash_tensor inputs = e.arena.tensor(ISOFLASH_F32, {7, 64}), grads = e.arena.tensor(ISOFLASH_F32, {7, 64});
  isoflash_backward_args fused = apart;
  i64 column = 0;
  const auto move_into = [&](const isoflash_tensor& buffer, isoflash_tensor& t, i64 at) {
    const isoflash_tensor before = t;
    t.data = floats(buffer) + at;
    t.strides[0] = 64;
    for (i64 row = 0; row < 7; ++row)
      std::memcpy(floats(t) + row * 64, floats(before) + row * before.strides[0], sizeof(float) * before.strides[0]);
  };
  const struct {
    isoflash_tensor &input, &grad;
  } slices[] = {{fused.q, fused.dq}, {fused.k, fused.dk}, {fused.v, fused.dv}};
  for (const auto& slice : slices) {
    const i64 width = slice.input.strides[0];
    move_into(inputs, slice.input, column);
    slice.grad.data = floats(grads) + column;
    slice.grad.strides[0] = 64;
    column += width;
  }
  isoflash_error* error = isoflash_error_create();
  ASSERT_EQ(isoflash_backward(handle.plan, &fused, error), 0) << isoflash_error_message(error);
  isoflash_error_destroy(error);
  const isoflash_tensor* results[][2] = {{&apart.dq, &fused.dq}, {&apart.dk, &fused.dk}, {&apart.dv, &fused.dv}};
  for (const auto& [a, f] : results)
    for (i64 row = 0; row < 7; ++row)
      for (i64 n = 0; n < a->strides[0]; ++n)
        ASSERT_EQ(floats(*a)[row * a->strides[0] + n], floats(*f)[row * 64 + n]) << "row " << row << " element " << n;
  for (i64 row = 0; row < 7; ++row)
    for (i64 n = column; n < 64; ++n) ASSERT_EQ(floats(grads)[row * 64 + n], 0) << "beyond the slices nothing is written";
}

TEST(CApi, GradientsMayBeLeftOut) {
  ExampleProblem e;
  fill({e.problem.q, e.problem.k, e.problem.v});
  const PlanHandle handle(e.problem);
  const isoflash_forward_args forward = e.forward_args(handle.plan);
  ASSERT_EQ(isoflash_forward(handle.plan, &forward, nullptr), 0);
  isoflash_backward_args all = e.backward_args(handle.plan);
  fill({all.dout});
  all.dlse.rank = 0;
  ASSERT_EQ(isoflash_backward(handle.plan, &all, nullptr), 0);
  for (int wanted = 0; wanted < 8; ++wanted) {
    isoflash_backward_args some = e.backward_args(handle.plan);
    some.dout = all.dout;
    some.dlse.rank = 0;
    isoflash_tensor* gradients[] = {&some.dq, &some.dk, &some.dv};
    const isoflash_tensor* expected[] = {&all.dq, &all.dk, &all.dv};
    for (int n = 0; n < 3; ++n)
      if ((wanted >> n & 1) == 0) gradients[n]->rank = 0;
    ASSERT_EQ(isoflash_backward(handle.plan, &some, nullptr), 0) << wanted;
    for (int n = 0; n < 3; ++n) {
      if ((wanted >> n & 1) == 0) continue;
      for (i64 i = 0; i < elements(*gradients[n]); ++i)
        ASSERT_EQ(floats(*gradients[n])[i], floats(*expected[n])[i]) << "subset " << wanted << " gradient " << n;
    }
  }
}

TEST(CApi, ThreadsShareAPlan) {
  ExampleProblem e = ExampleProblem::packed({0, 40, 40, 97}, {0, 55, 60, 120});
  fill({e.problem.q, e.problem.k, e.problem.v});
  const PlanHandle handle(e.problem, 2);
  ASSERT_EQ(handle.status, 0) << handle.message;
  isoflash_forward_args forward = e.forward_args(handle.plan);
  ASSERT_EQ(isoflash_forward(handle.plan, &forward, nullptr), 0);
  isoflash_backward_args backward = e.backward_args(handle.plan);
  fill({backward.dout, backward.dlse});
  ASSERT_EQ(isoflash_backward(handle.plan, &backward, nullptr), 0);

  const auto same = [](const isoflash_tensor& a, const isoflash_tensor& b) {
    return std::memcmp(a.data, b.data, static_cast<std::size_t>(elements(a)) * sizeof(float)) == 0;
  };
  std::vector<int> wrong(8, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      test::Arena arena;
      ExampleProblem mine;
      mine.problem = e.problem;
      mine.problem.out = mine.like(e.problem.out);
      mine.problem.lse = mine.like(e.problem.lse);
      for (int repeat = 0; repeat < 20; ++repeat) {
        // Every thread also makes plans of its own shape, so that planning and running meet.
        const PlanHandle other(mine.problem, static_cast<int>(t % 3));
        const isoflash_forward_args f = mine.forward_args(handle.plan);
        wrong[t] += isoflash_forward(handle.plan, &f, nullptr) != 0 || other.status != 0;
        isoflash_backward_args b = mine.backward_args(handle.plan);
        b.dout = backward.dout;
        b.dlse = backward.dlse;
        wrong[t] += isoflash_backward(handle.plan, &b, nullptr) != 0;
        wrong[t] += !same(f.out, forward.out) || !same(f.lse, forward.lse) || !same(b.dq, backward.dq) ||
                    !same(b.dk, backward.dk) || !same(b.dv, backward.dv);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < wrong.size(); ++t)
    EXPECT_EQ(wrong[t], 0) << "thread " << t << " failed or got bits that a single thread does not";
}

TEST(CApi, NullsAreHarmless) {
  isoflash_tensor_contiguous(nullptr, nullptr, ISOFLASH_F32, 1, nullptr);
  isoflash_problem_init(nullptr);
  isoflash_plan_options_init(nullptr);
  isoflash_forward_args_init(nullptr);
  isoflash_backward_args_init(nullptr);
  isoflash_plan_destroy(nullptr);
  isoflash_error_destroy(nullptr);
  EXPECT_STREQ(isoflash_error_name(nullptr), "");
  EXPECT_STREQ(isoflash_plan_kernel(nullptr), "");
  EXPECT_EQ(isoflash_forward_workspace_size(nullptr), 0u);
  EXPECT_NE(isoflash_plan_create(nullptr, nullptr, nullptr, nullptr), 0);
  EXPECT_NE(isoflash_forward(nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(isoflash_backend_why_not(0, nullptr, nullptr), nullptr);
  EXPECT_EQ(isoflash_backend_name(-1), nullptr);
  EXPECT_EQ(isoflash_cpu_level_name(99), nullptr);
}

TEST(CApi, BackendsSayWhyNot) {
  ASSERT_GE(isoflash_backend_count(), 1);
  EXPECT_STREQ(isoflash_backend_name(isoflash_backend_count() - 1), "cpu");
  isoflash_error* error = isoflash_error_create();
  ExampleProblem e;
  EXPECT_STREQ(isoflash_backend_why_not(0, &e.problem, error), "");
  for (isoflash_tensor* t : {&e.problem.q, &e.problem.k, &e.problem.v, &e.problem.out, &e.problem.lse})
    t->device_type = ISOFLASH_CUDA;
  EXPECT_NE(std::string(isoflash_backend_why_not(0, &e.problem, error)).find("CUDA"), std::string::npos);
  EXPECT_EQ(isoflash_error_id(error), 0) << "the question was answered";
  e.problem.q.rank = 0;
  const char* const reason = isoflash_backend_why_not(0, &e.problem, error);
  EXPECT_STREQ(reason, isoflash_error_message(error));
  EXPECT_NE(isoflash_error_id(error), 0) << "no problem to answer about";
  isoflash_error_destroy(error);
}

TEST(CApi, CatalogueIsWalkedInOrder) {
  int entries = 0, last = 0;
  for (isoflash_status id = isoflash_error_next(0); id != 0; id = isoflash_error_next(id), ++entries) {
    EXPECT_GT(id, last);
    last = id;
    ASSERT_NE(isoflash_error_catalogue_json(id), nullptr);
    ASSERT_NE(isoflash_error_catalogue_markdown(id), nullptr);
  }
  EXPECT_GT(entries, 50);
  EXPECT_EQ(isoflash_error_catalogue_json(1), nullptr);
  EXPECT_STREQ(isoflash_version(), "0.1.0");
}

// --- anything may be written into a descriptor -----------------------------------------------------------------------

// A problem with random shapes, lengths and mask that keeps every rule. Nothing is computed, so there is no data.
isoflash_problem random_problem(test::Arena& arena) {
  const auto up_to = [](int limit) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, limit + 1)); };
  isoflash_problem p;
  isoflash_problem_init(&p);
  const i64 batch = up_to(3), heads_kv = 1 + up_to(2), heads = heads_kv * up_to(5);
  const i64 dim = 1 + up_to(255), dim_v = 1 + up_to(255);
  const auto dtype = *rc::gen::element(ISOFLASH_F32, ISOFLASH_BF16, ISOFLASH_F16);
  const auto describe = [](isoflash_tensor& t, isoflash_dtype type, std::initializer_list<i64> extents) {
    std::vector<std::int64_t> shape(extents.begin(), extents.end());
    isoflash_tensor_contiguous(&t, nullptr, type, static_cast<i32>(shape.size()), shape.data());
  };
  // c + h + n keys, and queries at the end of them.
  std::vector<i32> context, history, candidates, keys, queries, cu_q{0}, cu_kv{0};
  const bool packed = *rc::gen::arbitrary<bool>();
  for (i64 b = 0; b < batch; ++b) {
    const bool fresh = packed || b == 0;
    context.push_back(fresh ? up_to(4) : context[0]);
    history.push_back(fresh ? up_to(30) : history[0]);
    candidates.push_back(fresh ? up_to(9) : candidates[0]);
    keys.push_back(context.back() + history.back() + candidates.back());
    queries.push_back(fresh ? up_to(keys.back()) : queries[0]);
    cu_q.push_back(cu_q.back() + queries.back());
    cu_kv.push_back(cu_kv.back() + keys.back());
  }
  if (packed) {
    describe(p.q, dtype, {cu_q.back(), heads, dim});
    describe(p.k, dtype, {cu_kv.back(), heads_kv, dim});
    describe(p.v, dtype, {cu_kv.back(), heads_kv, dim_v});
    describe(p.out, dtype, {cu_q.back(), heads, dim_v});
    describe(p.lse, ISOFLASH_F32, {heads, cu_q.back()});
    p.cu_seqlens_q = arena.int32(cu_q);
    p.cu_seqlens_kv = arena.int32(cu_kv);
  } else {
    const i64 rows = batch > 0 ? queries[0] : 5, rows_kv = batch > 0 ? keys[0] : 7;
    describe(p.q, dtype, {batch, rows, heads, dim});
    describe(p.k, dtype, {batch, rows_kv, heads_kv, dim});
    describe(p.v, dtype, {batch, rows_kv, heads_kv, dim_v});
    describe(p.out, dtype, {batch, rows, heads, dim_v});
    describe(p.lse, ISOFLASH_F32, {batch, heads, rows});
  }
  p.mask.num_context.values = arena.int32(context);
  p.mask.history_len.values = arena.int32(history);
  if (*rc::gen::arbitrary<bool>()) p.mask.num_candidates.values = arena.int32(candidates);
  p.mask.history_kind = up_to(2);
  if (p.mask.history_kind == ISOFLASH_HISTORY_WINDOW) p.mask.window_left = up_to(40);
  p.mask.candidate_group_size = 1 + up_to(4);
  p.softcap_kind = up_to(2);
  if (p.softcap_kind != ISOFLASH_SOFTCAP_NONE) p.softcap = 1 + up_to(100);
  if (*rc::gen::arbitrary<bool>()) p.lse.rank = 0;
  return p;
}

RC_GTEST_PROP(CApiProperties, WhatKeepsTheRulesIsPlanned, ()) {
  test::Arena arena;
  const isoflash_problem p = random_problem(arena);
  const PlanHandle handle(p);
  if (handle.status != 0) RC_FAIL(handle.message);
}

RC_GTEST_PROP(CApiProperties, WhateverIsWrittenIntoADescriptorGivesAPlanOrAnError, ()) {
  test::Arena arena;
  isoflash_problem p = random_problem(arena);
  // Numbers of the descriptor are overwritten with anything. Data pointers and what says how far length arrays are read
  // stay: those a caller must get right.
  const isoflash_problem good = p;
  const int writes = *rc::gen::inRange(1, 4);
  for (int n = 0; n < writes; ++n) {
    const auto word = *rc::gen::inRange<std::size_t>(0, sizeof p / 4);
    const i32 small = *rc::gen::inRange(-3, 70);
    const i32 value = *rc::gen::element(small, INT32_MAX, INT32_MIN, small << 20);
    std::memcpy(reinterpret_cast<char*>(&p) + 4 * word, &value, 4);
    const u64 wide = static_cast<u64>(value) << 32 | static_cast<u32>(small);
    if (word + 1 < sizeof p / 4 && *rc::gen::arbitrary<bool>())
      std::memcpy(reinterpret_cast<char*>(&p) + 4 * word, &wide, 8);
  }
  p.struct_size = good.struct_size;
  for (auto array : {&isoflash_problem::cu_seqlens_q, &isoflash_problem::cu_seqlens_kv, &isoflash_problem::seqused_q,
                     &isoflash_problem::seqused_kv})
    p.*array = good.*array;
  for (auto part : {&isoflash_mask::num_context, &isoflash_mask::history_len, &isoflash_mask::num_candidates,
                    &isoflash_mask::history_begin, &isoflash_mask::history_end, &isoflash_mask::candidate_begin,
                    &isoflash_mask::query_offset})
    (p.mask.*part).values = (good.mask.*part).values;
  const PlanHandle handle(p);
  RC_ASSERT((handle.status == 0) == (handle.plan != nullptr));
  RC_ASSERT((handle.status == 0) == handle.message.empty());
}

}  // namespace
}  // namespace iso
