#include "batch.h"

#include <gmock/gmock.h>

#include "pack.h"
#include "run_batch.h"
#include "scratch_file.h"
#include "verify.h"

namespace iso::tool {
namespace {

using testing::HasSubstr;

Batch tiny_batch() {
  const InteractionLog log = generate_interactions(3, 1);
  PackOptions options;
  options.num_heads_q = 4;
  options.num_heads_kv = 2;
  options.head_dim = options.head_dim_v = 32;
  return pack_batch(log, make_sessions(log, options), options, "test", [](i64, i64) {});
}

Expected<Batch> written_and_read(const Batch& batch) {
  const ScratchFile scratch("batch.safetensors", "");
  EXPECT_TRUE(write_batch(scratch.path(), batch).has_value());
  return read_batch(scratch.path());
}

void expect_error(const Batch& batch, int id, const std::string& words) {
  const auto read = written_and_read(batch);
  ASSERT_FALSE(read.has_value()) << "accepted, but should say: " << words;
  EXPECT_EQ(read.error().id(), id);
  EXPECT_THAT(read.error().message(), HasSubstr(words));
}

TEST(ErrorsRaised, FileTensorMissing) {
  Batch batch = tiny_batch();
  batch.tensors.erase("k");
  expect_error(batch, errors::FileTensorMissing::kId, "k");
}

TEST(ErrorsRaised, FileTensorDtype) {
  Batch batch = tiny_batch();
  batch.tensors.insert_or_assign("history_len", TensorData(DType::i64, {3}));
  expect_error(batch, errors::FileTensorDtype::kId, "history_len");
}

TEST(ErrorsRaised, FileTensorShape) {
  Batch batch = tiny_batch();
  batch.tensors.insert_or_assign("v", TensorData(DType::bf16, {3, 4}));
  expect_error(batch, errors::FileTensorShape::kId, "(3, 4)");
}

TEST(ErrorsRaised, FileMetadata) {
  for (const auto& [key, value] :
       {std::pair{"history_kind", "sideways"}, {"scale", "big"}, {"softcap", "nan"}, {"candidate_group_size", "2.5"}}) {
    Batch batch = tiny_batch();
    batch.metadata[key] = value;
    const auto call = library_problem("t", batch);
    ASSERT_FALSE(call.has_value()) << key;
    EXPECT_EQ(call.error().id(), errors::FileMetadata::kId);
    EXPECT_THAT(call.error().message(), HasSubstr(value));
  }
}

TEST(Batch, RunsAndVerifiesEndToEnd) {
  const auto batch = written_and_read(tiny_batch());
  ASSERT_TRUE(batch.has_value()) << batch.error().message();
  const RunResult run = run_batch("batch", *batch, {.backward = true, .repeat = 1});
  for (const VerifyMode mode : {VerifyMode::sample, VerifyMode::full}) {
    const auto findings = verify(run.call, run.tensors, mode, [](i64, i64) {});
    ASSERT_EQ(findings.size(), 5u);
    for (const Verified& v : findings) {
      EXPECT_EQ(v.finding, "");
      EXPECT_GT(v.rows, 0);
      EXPECT_LE(v.error, v.allowed);
    }
  }
}

TEST(Batch, VerificationSeesOneWrongNumberInEachOutput) {
  const Batch batch = tiny_batch();
  RunResult run = run_batch("batch", batch, {.backward = true, .repeat = 1});
  const auto spoil = [](TensorData& t) {
    if (t.dtype() == DType::f32)
      t.as<float>()[0] += 1;
    else
      t.as<bf16>()[0] = to_bf16(to_float(t.as<bf16>()[0]) + 1);
  };
  for (TensorData* output : {&run.out, &run.lse, &run.dq, &run.dk, &run.dv}) spoil(*output);
  for (const Verified& v : verify(run.call, run.tensors, VerifyMode::sample, [](i64, i64) {}))
    EXPECT_NE(v.finding, "") << v.output << ": row 0 is wrong by 1, but the check passed";
}

}  // namespace
}  // namespace iso::tool
