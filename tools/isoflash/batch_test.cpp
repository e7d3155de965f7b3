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
  for (const auto& [key, value] : {std::pair{"history_kind", "sideways"},
                                   {"scale", "big"},
                                   {"softcap", "nan"},
                                   {"candidate_group_size", "2.5"},
                                   {"block_m", "64.5"},
                                   {"window_left", "far"},
                                   {"softcap_kind", "round"}}) {
    Batch batch = tiny_batch();
    batch.metadata[key] = value;
    const auto call = library_problem("t", batch);
    ASSERT_FALSE(call.has_value()) << key;
    EXPECT_EQ(call.error().id(), errors::FileMetadata::kId);
    EXPECT_THAT(call.error().message(), HasSubstr(value));
  }
}

TEST(Batch, ShapesFollowTheLayout) {
  Batch batch = tiny_batch();
  batch.tensors.insert_or_assign("row_intervals", TensorData(DType::i32, {1, 1, 8, 2}));
  expect_error(batch, errors::FileTensorShape::kId, "expected (num_heads_q, total_q, 2 n)");
  batch = tiny_batch();
  batch.tensors.insert_or_assign("block_table", TensorData(DType::i32, {3, 1}));
  expect_error(batch, errors::FileTensorShape::kId, "expected (num_pages, page_size, num_heads_kv, head_dim)");
  batch = tiny_batch();
  batch.tensors.insert_or_assign("bias", TensorData(DType::bf16, {1, 1, 1}));
  expect_error(batch, errors::FileTensorDtype::kId, "bias has dtype BF16, expected F32");
}

// What the library finds, it names as the file does.
TEST(Batch, ErrorsOfTheLibraryNameTheTensor) {
  for (const auto& [name, shape] : {std::pair{"seqused_kv", std::vector<i64>{5}},
                                    {"sink", {1, 1}},
                                    {"block_table", {1, 2}},
                                    {"blocks.forward.full.counts", {1, 7}},
                                    {"row_intervals", {1, 1, 4}}}) {
    Batch batch = tiny_batch();
    batch.metadata["block_m"] = batch.metadata["block_n"] = "64";
    batch.tensors.insert_or_assign(name, TensorData(std::string(name) == "sink" ? DType::f32 : DType::i32, shape));
    if (std::string(name) == "block_table")
      for (const char* keys : {"k", "v"}) batch.tensors.insert_or_assign(keys, TensorData(DType::bf16, {2, 8, 2, 32}));
    if (std::string(name) != "blocks.forward.full.counts") batch.metadata.erase("block_m"), batch.metadata.erase("block_n");
    const auto call = library_problem("t", batch);
    ASSERT_TRUE(call.has_value()) << call.error().message();
    const auto plan = isoflash::Plan::create(*call);
    ASSERT_FALSE(plan.has_value()) << name;
    EXPECT_THAT(plan.error().message(), HasSubstr(std::string(name).substr(0, std::string(name).rfind(".counts"))));
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
  for (TensorData* output : {&run.out, &run.lse, &run.gradients.dq, &run.gradients.dk, &run.gradients.dv}) spoil(*output);
  for (const Verified& v : verify(run.call, run.tensors, VerifyMode::sample, [](i64, i64) {}))
    EXPECT_NE(v.finding, "") << v.output << ": row 0 is wrong by 1, but the check passed";
}

}  // namespace
}  // namespace iso::tool
