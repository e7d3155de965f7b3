// Every error that a caller of the C ABI can meet, met: one test per catalogue entry, named after it. Those of lists, pages
// and what else a plan may have are in the files beside this one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>

#include "errors/error.h"
#include "support/findings.h"

namespace iso {
namespace {

using test::Calls;
using test::ErrorHolder;
using test::ExampleProblem;
using test::expect_error;
using test::Finding;
using test::plan_finding;

TEST(ErrorsRaised, NoneByTheExamples) {
  ExampleProblem dense;
  EXPECT_EQ(plan_finding(dense.problem).message, "");
  const ExampleProblem packed = ExampleProblem::packed({0, 3, 3, 7}, {0, 5, 6, 10});
  EXPECT_EQ(plan_finding(packed.problem).message, "");
}

// --- 1xxx shapes -----------------------------------------------------------------------------------------------------

TEST(ErrorsRaised, TensorMissing) {
  ExampleProblem e;
  e.problem.v.rank = 0;
  expect_error<errors::TensorMissing>(plan_finding(e.problem), {"v"});

  ExampleProblem valid;
  Calls calls(valid);
  calls.backward.dout.rank = 0;
  expect_error<errors::TensorMissing>(calls.run_backward(), {"dout", "isoflash_backward"});

  ExampleProblem with_sink;
  with_sink.problem.sink = with_sink.arena.tensor(ISOFLASH_F32, {4});
  Calls sink_calls(with_sink);
  sink_calls.forward.sink.rank = 0;
  expect_error<errors::TensorMissing>(sink_calls.run_forward(), {"sink", "isoflash_forward"});
}

TEST(ErrorsRaised, RankMismatch) {
  ExampleProblem e;
  e.problem.q.rank = 3;
  expect_error<errors::RankMismatch>(plan_finding(e.problem), {"q", "3", "cu_seqlens"});
  e.problem.q.rank = 5;
  expect_error<errors::RankMismatch>(plan_finding(e.problem), {"q", "5"});
  e.problem.q.rank = 4;
  e.problem.lse.rank = 2;
  expect_error<errors::RankMismatch>(plan_finding(e.problem), {"lse", "2", "num_heads_q"});
}

TEST(ErrorsRaised, ShapeMismatch) {
  ExampleProblem e;
  e.problem.v.shape[1] = 9;
  expect_error<errors::ShapeMismatch>(plan_finding(e.problem), {"v", "seqlen_kv", "9", "10"});
}

TEST(ErrorsRaised, HeadRatio) {
  for (const auto& [q, kv] : {std::pair{3, 2}, {33, 2}, {2, 4}, {4, 0}}) {
    ExampleProblem e;
    e.problem.q.shape[2] = e.problem.out.shape[2] = e.problem.lse.shape[1] = q;
    e.problem.k.shape[2] = e.problem.v.shape[2] = kv;
    expect_error<errors::HeadRatio>(plan_finding(e.problem), {std::to_string(q).c_str(), std::to_string(kv).c_str()});
  }
}

TEST(ErrorsRaised, HeadDimRange) {
  ExampleProblem e;
  e.problem.q.shape[3] = e.problem.k.shape[3] = 257;
  expect_error<errors::HeadDimRange>(plan_finding(e.problem), {"head_dim", "257", "256"});
  ExampleProblem zero;
  zero.problem.v.shape[3] = zero.problem.out.shape[3] = 0;
  expect_error<errors::HeadDimRange>(plan_finding(zero.problem), {"head_dim_v", "0"});
}

TEST(ErrorsRaised, SeqlenTooLong) {
  ExampleProblem e;
  e.problem.k.shape[1] = e.problem.v.shape[1] = i64{1} << 29;
  e.problem.k.strides[0] = e.problem.v.strides[0] = 0;
  expect_error<errors::SeqlenTooLong>(plan_finding(e.problem), {"seqlen_kv", "536870912"});
}

TEST(ErrorsRaised, BatchTooLarge) {
  ExampleProblem e;
  e.problem.q.shape[0] = i64{1} << 40;
  e.problem.q.strides[0] = 0;
  expect_error<errors::BatchTooLarge>(plan_finding(e.problem), {"1099511627776"});
}

TEST(ErrorsRaised, NegativeExtent) {
  ExampleProblem e;
  e.problem.out.shape[1] = -6;
  expect_error<errors::NegativeExtent>(plan_finding(e.problem), {"out", "-6"});
}

TEST(ErrorsRaised, OffsetOverflow) {
  ExampleProblem e;
  e.problem.k.strides[1] = std::numeric_limits<i64>::max() / 4;
  expect_error<errors::OffsetOverflow>(plan_finding(e.problem), {"k", "(2, 10, 2, 8)"});
  e.problem.k.strides[1] = std::numeric_limits<i64>::min();
  expect_error<errors::OffsetOverflow>(plan_finding(e.problem), {"k"});
  e.problem.k.strides[1] = -16;
  EXPECT_EQ(plan_finding(e.problem).id, 0) << "inputs may run backwards";
}

TEST(ErrorsRaised, MaxSeqlenExceeded) {
  ExampleProblem e = ExampleProblem::packed({0, 5, 10}, {0, 5, 10});
  e.problem.max_seqlen_q = 4;
  expect_error<errors::MaxSeqlenExceeded>(plan_finding(e.problem), {"max_seqlen_q", "4", "5", "sequence 0"});
}

TEST(ErrorsRaised, MaxSeqlenNegative) {
  ExampleProblem e;
  e.problem.max_seqlen_kv = -1;
  expect_error<errors::MaxSeqlenNegative>(plan_finding(e.problem), {"max_seqlen_kv", "-1"});
}

// --- 2xxx dtypes and layout ------------------------------------------------------------------------------------------

TEST(ErrorsRaised, DtypeUnsupported) {
  ExampleProblem e;
  e.problem.q.dtype = ISOFLASH_F64;
  expect_error<errors::DtypeUnsupported>(plan_finding(e.problem), {"q", "float64", "bfloat16"});
}

TEST(ErrorsRaised, DtypeMismatch) {
  ExampleProblem e;
  e.problem.v.dtype = ISOFLASH_BF16;
  expect_error<errors::DtypeMismatch>(plan_finding(e.problem), {"v", "bfloat16", "q", "float32"});
}

TEST(ErrorsRaised, LseDtype) {
  ExampleProblem e;
  e.problem.lse.dtype = ISOFLASH_BF16;
  expect_error<errors::LseDtype>(plan_finding(e.problem), {"lse", "bfloat16", "float32"});
}

TEST(ErrorsRaised, IndexDtype) {
  ExampleProblem e = ExampleProblem::packed({0, 5}, {0, 5});
  e.problem.cu_seqlens_kv.dtype = ISOFLASH_I64;
  expect_error<errors::IndexDtype>(plan_finding(e.problem), {"cu_seqlens_kv", "int64", "int32"});
}

TEST(ErrorsRaised, GradientLayout) {
  ExampleProblem e;
  Calls calls(e);
  calls.backward.dk.strides[1] = 0;  // expanded over the rows
  expect_error<errors::GradientLayout>(
      calls.run_backward(), {"dk", "gradient of k", "(2, 10, 2, 8)", "(160, 0, 8, 1)", "float32", "seqlen_kv", "head_dim"});
  calls.backward.dk.strides[1] = -16;
  expect_error<errors::GradientLayout>(calls.run_backward(), {"dk", "-16"});
}

TEST(ErrorsRaised, OutputLayout) {
  ExampleProblem e;
  e.problem.out.strides[2] = 0;
  expect_error<errors::OutputLayout>(plan_finding(e.problem), {"out", "num_heads_q", "(2, 6, 4, 4)"});
  ExampleProblem lse;
  lse.problem.lse.strides[2] = -1;
  expect_error<errors::OutputLayout>(plan_finding(lse.problem), {"lse", "seqlen_q", "-1"});
}

TEST(ErrorsRaised, OutputSelfOverlap) {
  ExampleProblem e;
  e.problem.out.strides[1] = 4;  // rows as far apart as heads
  expect_error<errors::OutputSelfOverlap>(plan_finding(e.problem), {"out", "(96, 4, 4, 1)"});
}

TEST(ErrorsRaised, OutputAliases) {
  ExampleProblem e;
  Calls calls(e);
  calls.backward.dk.data = calls.backward.dq.data;
  expect_error<errors::OutputAliases>(calls.run_backward(), {"dq", "dk"});
  calls.forward.out.data = static_cast<char*>(e.problem.v.data) + 4;
  expect_error<errors::OutputAliases>(calls.run_forward(), {"out", "v"});
  ASSERT_GT(calls.forward.workspace_size, 0u);
  calls.forward.out = e.problem.out;
  calls.forward.workspace = e.problem.q.data;
  expect_error<errors::OutputAliases>(calls.run_forward(), {"workspace", "q"});
}

TEST(ErrorsRaised, NullData) {
  ExampleProblem e;
  Calls calls(e);
  calls.forward.k.data = nullptr;
  expect_error<errors::NullData>(calls.run_forward(), {"k", "(2, 10, 2, 8)"});
  ExampleProblem packed = ExampleProblem::packed({0, 5}, {0, 5});
  packed.problem.cu_seqlens_q.data = nullptr;
  expect_error<errors::NullData>(plan_finding(packed.problem), {"cu_seqlens_q"});
}

TEST(ErrorsRaised, MisalignedPointer) {
  ExampleProblem e;
  Calls calls(e);
  calls.forward.q.data = static_cast<char*>(e.problem.q.data) + 2;
  expect_error<errors::MisalignedPointer>(calls.run_forward(), {"q", "4"});
}

TEST(ErrorsRaised, DeviceMismatch) {
  ExampleProblem e;
  e.problem.k.device_type = ISOFLASH_CUDA;
  expect_error<errors::DeviceMismatch>(plan_finding(e.problem), {"k", "cuda:0", "q", "cpu"});
}

TEST(ErrorsRaised, DeviceUnknown) {
  ExampleProblem e;
  e.problem.q.device_type = 7;
  expect_error<errors::DeviceUnknown>(plan_finding(e.problem), {"q", "7"});
}

TEST(ErrorsRaised, IndexDevice) {
  ExampleProblem e = ExampleProblem::packed({0, 5}, {0, 5});
  e.problem.cu_seqlens_q.device_type = ISOFLASH_CUDA;
  expect_error<errors::IndexDevice>(plan_finding(e.problem), {"cu_seqlens_q", "cuda:0"});
}

// --- 3xxx masks and packing ------------------------------------------------------------------------------------------

// cu_seqlens_q, then cu_seqlens_kv, replaced by `values` in a problem of ten rows.
template <class E>
void expect_cu_seqlens_error(const std::vector<i32>& values, std::initializer_list<const char*> parts) {
  ExampleProblem e = ExampleProblem::packed({0, 5, 10}, {0, 5, 10});
  e.problem.cu_seqlens_q = e.arena.int32(values);
  // The other side gets as many sequences, so that only the values are wrong.
  std::vector<i32> other(values.size(), 10);
  other[0] = 0;
  e.problem.cu_seqlens_kv = e.arena.int32(other);
  const Finding q = plan_finding(e.problem);
  expect_error<E>(q, parts);
  EXPECT_TRUE(q.mentions("cu_seqlens_q")) << q.message;
  std::swap(e.problem.cu_seqlens_q, e.problem.cu_seqlens_kv);
  const Finding kv = plan_finding(e.problem);
  expect_error<E>(kv, parts);
  EXPECT_TRUE(kv.mentions("cu_seqlens_kv")) << kv.message;
}

TEST(ErrorsRaised, CuSeqlensStart) { expect_cu_seqlens_error<errors::CuSeqlensStart>({1, 5, 10}, {"1"}); }

TEST(ErrorsRaised, CuSeqlensDecrease) { expect_cu_seqlens_error<errors::CuSeqlensDecrease>({0, 6, 4, 10}, {"4", "6"}); }

TEST(ErrorsRaised, CuSeqlensEnd) {
  expect_cu_seqlens_error<errors::CuSeqlensEnd>({0, 5, 9}, {"9", "10"});
  expect_cu_seqlens_error<errors::CuSeqlensEnd>({0, 5, 12}, {"12", "10"});
}

TEST(ErrorsRaised, CandidateSpanMismatch) {
  ExampleProblem e = ExampleProblem::packed({0, 5, 12}, {0, 5, 12});
  e.problem.mask.num_context.value = 2;
  e.problem.mask.history_len.values = e.arena.int32({2, 3});
  e.problem.mask.num_candidates.values = e.arena.int32({1, 1});
  expect_error<errors::CandidateSpanMismatch>(plan_finding(e.problem), {"sequence 1", "2", "3", "1", "7"});
  ExampleProblem huge;
  huge.problem.mask.num_context.value = std::numeric_limits<std::int64_t>::max();
  expect_error<errors::CandidateSpanMismatch>(plan_finding(huge.problem), {"context 9223372036854775807"});
}

TEST(ErrorsRaised, NegativePart) {
  ExampleProblem e;
  e.problem.mask.num_candidates.values = e.arena.int32({1, -3});
  expect_error<errors::NegativePart>(plan_finding(e.problem), {"sequence 1", "num_candidates", "-3"});
}

TEST(ErrorsRaised, PartOverlap) {
  ExampleProblem e;
  e.problem.mask.history_len.value = 8;
  e.problem.mask.candidate_begin.value = 7;
  expect_error<errors::PartOverlap>(plan_finding(e.problem), {"sequence 0", "7", "8"});
}

TEST(ErrorsRaised, HistoryRange) {
  ExampleProblem e;
  e.problem.mask.num_context.value = 2;
  e.problem.mask.history_begin.value = 1;
  expect_error<errors::HistoryRange>(plan_finding(e.problem), {"sequence 0", "1", "2", "10"});
}

TEST(ErrorsRaised, CandidateGroupSize) {
  ExampleProblem e;
  e.problem.mask.candidate_group_size = 0;
  expect_error<errors::CandidateGroupSize>(plan_finding(e.problem), {"0"});
}

TEST(ErrorsRaised, WindowWithoutKind) {
  ExampleProblem e;
  e.problem.mask.window_left = 4;
  expect_error<errors::WindowWithoutKind>(plan_finding(e.problem), {"window_left", "4", "BIDIRECTIONAL"});
}

TEST(ErrorsRaised, NegativeWindow) {
  for (const auto& [left, right] : {std::pair{-1, -3}, {-2, 4}, {5, -3}}) {
    ExampleProblem e;
    e.problem.mask.history_kind = ISOFLASH_HISTORY_WINDOW;
    e.problem.mask.window_left = left;
    e.problem.mask.window_right = right;
    expect_error<errors::NegativeWindow>(plan_finding(e.problem),
                                         {"window_", std::to_string(std::min(left, right)).c_str()});
  }
}

TEST(ErrorsRaised, QueryOffsetRange) {
  ExampleProblem e;
  e.problem.mask.num_candidates.value = 4;
  e.problem.mask.query_offset.value = 5;
  expect_error<errors::QueryOffsetRange>(plan_finding(e.problem), {"sequence 0", "5", "6", "10", "positions 0 to"});
  // Plain attention takes nearly any offset, and what it does not take is told with its own limits.
  ExampleProblem plain;
  plain.problem.mask.query_offset.value = std::numeric_limits<std::int64_t>::max();
  expect_error<errors::QueryOffsetRange>(plan_finding(plain.problem), {"9223372036854775807", "to 536870911"});
}

TEST(ErrorsRaised, CuSeqlensUnpaired) {
  ExampleProblem e = ExampleProblem::packed({0, 5}, {0, 5});
  e.problem.cu_seqlens_kv.rank = 0;
  expect_error<errors::CuSeqlensUnpaired>(plan_finding(e.problem), {"cu_seqlens_q", "cu_seqlens_kv"});
}

TEST(ErrorsRaised, CuSeqlensShape) {
  ExampleProblem e = ExampleProblem::packed({0, 5}, {0, 5});
  e.problem.cu_seqlens_q.shape[0] = 0;
  expect_error<errors::CuSeqlensShape>(plan_finding(e.problem), {"cu_seqlens_q", "(0)"});
}

TEST(ErrorsRaised, CuSeqlensBatch) {
  const ExampleProblem e = ExampleProblem::packed({0, 5, 10}, {0, 5});
  expect_error<errors::CuSeqlensBatch>(plan_finding(e.problem), {"cu_seqlens_q has 2", "1"});
}

TEST(ErrorsRaised, PackedRank) {
  ExampleProblem e = ExampleProblem::packed({0, 5}, {0, 5});
  e.problem.k.rank = 4;
  expect_error<errors::PackedRank>(plan_finding(e.problem), {"k", "4"});
}

TEST(ErrorsRaised, SequsedRange) {
  ExampleProblem e;
  e.problem.seqused_kv = e.arena.int32({10, 11});
  expect_error<errors::SequsedRange>(plan_finding(e.problem), {"seqused_kv", "1", "11", "10"});
  e.problem.seqused_kv = e.arena.int32({-1, 10});
  expect_error<errors::SequsedRange>(plan_finding(e.problem), {"seqused_kv", "-1"});
}

TEST(ErrorsRaised, HistoryKindUnknown) {
  ExampleProblem e;
  e.problem.mask.history_kind = 3;
  expect_error<errors::HistoryKindUnknown>(plan_finding(e.problem), {"3"});
}

TEST(ErrorsRaised, SoftcapKindUnknown) {
  ExampleProblem e;
  e.problem.softcap_kind = -1;
  expect_error<errors::SoftcapKindUnknown>(plan_finding(e.problem), {"-1"});
}

TEST(ErrorsRaised, SoftcapValue) {
  for (const double bad : {0.0, -30.0, 1e39, std::numeric_limits<double>::infinity(), std::nan("")}) {
    ExampleProblem e;
    e.problem.softcap_kind = ISOFLASH_SOFTCAP_TANH;
    e.problem.softcap = bad;
    expect_error<errors::SoftcapValue>(plan_finding(e.problem), {"TANH"});
  }
}

TEST(ErrorsRaised, SoftcapWithoutKind) {
  ExampleProblem e;
  e.problem.softcap = 30;
  expect_error<errors::SoftcapWithoutKind>(plan_finding(e.problem), {"30"});
}

TEST(ErrorsRaised, ScaleNotFinite) {
  ExampleProblem e;
  e.problem.scale = -std::numeric_limits<double>::infinity();
  expect_error<errors::ScaleNotFinite>(plan_finding(e.problem), {"-inf"});
  e.problem.scale = 1e39;  // infinite in float32
  expect_error<errors::ScaleNotFinite>(plan_finding(e.problem), {"1e+39"});
  for (const double scale : {0.0, -0.5, 1e30}) {
    e.problem.scale = scale;
    EXPECT_EQ(plan_finding(e.problem).id, 0) << "zero and negative scales are meant";
  }
}

TEST(ErrorsRaised, DropoutUnsupported) {
  ExampleProblem e;
  e.problem.dropout = 0.1;
  expect_error<errors::DropoutUnsupported>(plan_finding(e.problem), {"0.1"});
}

TEST(ErrorsRaised, EnumUnknown) {
  ExampleProblem e;
  e.problem.k.dtype = 17;
  expect_error<errors::EnumUnknown>(plan_finding(e.problem), {"k.dtype", "17"});
}

TEST(ErrorsRaised, PerSequenceShape) {
  ExampleProblem e;
  e.problem.mask.history_len.values = e.arena.int32({10, 10, 10});
  expect_error<errors::PerSequenceShape>(plan_finding(e.problem), {"history_len", "(3)", "2"});
}

// --- 5xxx backends ---------------------------------------------------------------------------------------------------

isoflash_plan_options options_with(const char* backend, int num_threads = 0) {
  isoflash_plan_options options;
  isoflash_plan_options_init(&options);
  options.backend = backend;
  options.num_threads = num_threads;
  return options;
}

void move_to_cuda(isoflash_problem& p) {
  for (isoflash_tensor* t : {&p.q, &p.k, &p.v, &p.out, &p.lse}) t->device_type = ISOFLASH_CUDA;
}

TEST(ErrorsRaised, NoBackend) {
  ExampleProblem e;
  move_to_cuda(e.problem);
  expect_error<errors::NoBackend>(plan_finding(e.problem), {"cpu"});
}

TEST(ErrorsRaised, BackendUnknown) {
  const ExampleProblem e;
  const isoflash_plan_options options = options_with("tpu");
  expect_error<errors::BackendUnknown>(plan_finding(e.problem, &options), {"tpu", "auto", "cpu"});
}

TEST(ErrorsRaised, BackendRefuses) {
  ExampleProblem e;
  move_to_cuda(e.problem);
  const isoflash_plan_options options = options_with("cpu");
  expect_error<errors::BackendRefuses>(plan_finding(e.problem, &options), {"cpu", "CUDA"});
}

// ISOFLASH_CPU_LEVEL for the scope.
class CpuLevelVariable {
 public:
  explicit CpuLevelVariable(const char* value) {
    if (const char* before = std::getenv("ISOFLASH_CPU_LEVEL")) before_ = before;
    setenv("ISOFLASH_CPU_LEVEL", value, 1);
  }
  ~CpuLevelVariable() {
    if (before_.empty())
      unsetenv("ISOFLASH_CPU_LEVEL");
    else
      setenv("ISOFLASH_CPU_LEVEL", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST(ErrorsRaised, CpuLevelUnknown) {
  const CpuLevelVariable variable("sse9");
  const ExampleProblem e;
  expect_error<errors::CpuLevelUnknown>(plan_finding(e.problem), {"sse9", "scalar"});
}

TEST(ErrorsRaised, CpuLevelUnavailable) {
  for (int n = 0; n < isoflash_cpu_level_count(); ++n) {
    if (isoflash_cpu_level_available(n)) continue;
    const CpuLevelVariable variable(isoflash_cpu_level_name(n));
    const ExampleProblem e;
    expect_error<errors::CpuLevelUnavailable>(plan_finding(e.problem), {isoflash_cpu_level_name(n), "scalar"});
    return;
  }
  GTEST_SKIP() << "this processor runs every CPU level";
}

// --- 6xxx plan and workspace -----------------------------------------------------------------------------------------

TEST(ErrorsRaised, StructSize) {
  struct {
    ExampleProblem example;
    char newer_fields[64] = {};
  } grown;
  isoflash_problem& problem = grown.example.problem;
  const unsigned first_size = offsetof(isoflash_problem, row_intervals);  // of version 0.1's first callers
  for (const unsigned size : {0u, 8u, first_size - 8, ~0u}) {
    problem.struct_size = size;
    expect_error<errors::StructSize>(plan_finding(problem), {"isoflash_problem", std::to_string(size).c_str()});
  }
  // An older caller's struct: what lies behind it is not read.
  problem.struct_size = first_size;
  problem.row_intervals.rank = 77;
  EXPECT_EQ(plan_finding(problem).id, 0);
  problem.row_intervals.rank = 0;
  // A newer caller's struct: accepted as long as its new fields are at rest.
  problem.struct_size = sizeof problem + 16;
  EXPECT_EQ(plan_finding(problem).id, 0);
  grown.newer_fields[7] = 1;
  expect_error<errors::StructSize>(plan_finding(problem), {"isoflash_problem"});

  ExampleProblem e;
  Calls calls(e);
  calls.forward.struct_size = 4;
  expect_error<errors::StructSize>(calls.run_forward(), {"isoflash_forward_args"});
  calls.backward.struct_size = 4;
  expect_error<errors::StructSize>(calls.run_backward(), {"isoflash_backward_args"});
}

TEST(ErrorsRaised, NullArgument) {
  ErrorHolder error;
  isoflash_plan* plan = nullptr;
  expect_error<errors::NullArgument>(error.finding(isoflash_plan_create(nullptr, nullptr, &plan, error.get())),
                                     {"problem"});
  const ExampleProblem e;
  expect_error<errors::NullArgument>(error.finding(isoflash_plan_create(&e.problem, nullptr, nullptr, error.get())),
                                     {"plan"});
  expect_error<errors::NullArgument>(error.finding(isoflash_forward(nullptr, nullptr, error.get())),
                                     {"isoflash_forward", "plan"});
  expect_error<errors::NullArgument>(error.finding(isoflash_backward(nullptr, nullptr, error.get())),
                                     {"isoflash_backward", "plan"});
}

TEST(ErrorsRaised, WorkspaceTooSmall) {
  ExampleProblem e;
  Calls calls(e);
  ASSERT_GT(calls.backward.workspace_size, 0u);
  --calls.backward.workspace_size;
  expect_error<errors::WorkspaceTooSmall>(calls.run_backward(),
                                          {"isoflash_backward", std::to_string(calls.backward.workspace_size).c_str()});
}

TEST(ErrorsRaised, WorkspaceMisaligned) {
  ExampleProblem e;
  Calls calls(e);
  calls.backward.workspace = static_cast<char*>(calls.backward.workspace) + 8;
  expect_error<errors::WorkspaceMisaligned>(calls.run_backward(), {"isoflash_backward", "64"});
}

TEST(ErrorsRaised, WorkspaceMissing) {
  ExampleProblem e;
  Calls calls(e);
  calls.backward.workspace = nullptr;
  expect_error<errors::WorkspaceMissing>(calls.run_backward(),
                                         {"isoflash_backward", std::to_string(calls.backward.workspace_size).c_str()});
}

TEST(ErrorsRaised, PlanShape) {
  ExampleProblem e;
  Calls calls(e);
  calls.backward.dq.shape[1] = 5;
  expect_error<errors::PlanShape>(calls.run_backward(), {"dq", "(2, 5, 4, 8)", "(2, 6, 4, 8)"});
}

TEST(ErrorsRaised, PlanDtype) {
  ExampleProblem e;
  Calls calls(e);
  calls.forward.v.dtype = ISOFLASH_F16;
  expect_error<errors::PlanDtype>(calls.run_forward(), {"v", "float16", "float32"});
}

TEST(ErrorsRaised, PlanDevice) {
  ExampleProblem e;
  Calls calls(e);
  calls.forward.q.device_type = ISOFLASH_CUDA;
  expect_error<errors::PlanDevice>(calls.run_forward(), {"q", "cuda:0", "cpu"});
}

TEST(ErrorsRaised, BackwardWithoutLse) {
  ExampleProblem e;
  Calls calls(e);
  calls.backward.lse.rank = 0;
  expect_error<errors::BackwardWithoutLse>(calls.run_backward(), {"lse"});
}

TEST(ErrorsRaised, NumThreads) {
  const ExampleProblem e;
  for (const int bad : {-1, 1025}) {
    const isoflash_plan_options options = options_with(nullptr, bad);
    expect_error<errors::NumThreads>(plan_finding(e.problem, &options), {std::to_string(bad).c_str()});
  }
}

TEST(ErrorsRaised, NumSplits) {
  const ExampleProblem e;
  isoflash_plan_options options = options_with(nullptr);
  for (const int bad : {-1, 1025}) {
    options.num_splits = bad;
    expect_error<errors::NumSplits>(plan_finding(e.problem, &options), {std::to_string(bad).c_str(), "1024"});
  }
}

TEST(ErrorsRaised, ReservedField) {
  ExampleProblem e;
  e.problem.mask.reserved0 = 3;
  expect_error<errors::ReservedField>(plan_finding(e.problem), {"mask.reserved0", "3"});
  e.problem.mask.reserved0 = 0;
  e.problem.reserved0 = 1;
  expect_error<errors::ReservedField>(plan_finding(e.problem), {"reserved0"});
  e.problem.reserved0 = 0;
  isoflash_plan_options options = options_with(nullptr);
  options.reserved0 = 2;
  expect_error<errors::ReservedField>(plan_finding(e.problem, &options), {"plan_options.reserved0", "2"});
}

TEST(ErrorsRaised, StreamOnCpu) {
  ExampleProblem e;
  Calls calls(e);
  calls.forward.stream = &calls;
  expect_error<errors::StreamOnCpu>(calls.run_forward(), {"isoflash_forward", "stream"});
}

}  // namespace
}  // namespace iso
