// Every form of a batch says the same: who sees whom, and which numbers stand where.
#include "pack_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "commands.h"
#include "core/reference.h"
#include "oracle_problem.h"
#include "pack.h"

namespace iso::tool {
namespace {

Batch packed_batch() {
  const InteractionLog log = generate_interactions(5, 3);
  PackOptions options;
  options.num_heads_q = 2;
  options.num_heads_kv = 1;
  options.head_dim = options.head_dim_v = 8;
  options.max_history = 150;
  options.positives = 10;
  options.history_kind = HistoryKind::causal;
  options.dtype = DType::f32;
  return pack_batch(log, make_sessions(log, options), options, "test", [](i64, i64) {});
}

Batch dense_batch() {
  Batch batch;
  const auto add = [&](const char* name, i64 heads) {
    TensorData t(DType::f32, {2, 160, heads, 8});
    float x = 0;
    for (float& element : t.as<float>()) element = x += 0.5f;
    batch.tensors.emplace(name, std::move(t));
  };
  add("q", 2);
  add("k", 1);
  add("v", 1);
  add("dout", 2);
  for (const auto& [name, value] : {std::pair{"num_context", 2}, {"history_len", 140}, {"num_candidates", 18}}) {
    TensorData t(DType::i32, {2});
    for (i32& element : t.as<i32>()) element = value;
    batch.tensors.emplace(name, std::move(t));
  }
  batch.metadata["candidate_group_size"] = "4";
  return batch;
}

// A batch as the oracle sees it, after the library has accepted it.
struct Oracle {
  Batch batch;
  isoflash::Problem call;
  OracleProblem oracle;

  explicit Oracle(Batch made) : batch(std::move(made)), call(*library_problem("test", batch)) {
    const auto plan = isoflash::Plan::create(call);
    EXPECT_TRUE(plan.has_value()) << plan.error().message();
    if (plan) oracle = oracle_problem(call);
  }
  float key(const Sequence& s, i32 j, bool value) const {
    const KvPlace at = kv_place(s, j);
    const Tensor t = core_tensor(at.is_new ? (value ? call.v_new : call.k_new) : (value ? call.v : call.k));
    return reference::load(t, reference::row_offset(t, at.batch, at.row, 0) + 3 * t.strides[t.rank - 1]);
  }
};

// Query row i of sequence b in `form` is row i + skipped of `plain`; all else is equal.
void expect_same(const Oracle& plain, const Oracle& form, bool candidates_only) {
  ASSERT_EQ(form.oracle.sequences.size(), plain.oracle.sequences.size());
  for (std::size_t b = 0; b < plain.oracle.sequences.size(); ++b) {
    const Sequence &p = plain.oracle.sequences[b], &f = form.oracle.sequences[b];
    const i32 skipped = candidates_only ? p.mask.candidate_begin : 0;
    ASSERT_EQ(f.seqlen_kv, p.seqlen_kv);
    ASSERT_EQ(f.seqlen_q, p.seqlen_q - skipped);
    for (i32 i = 0; i < f.seqlen_q; ++i)
      for (i32 j = 0; j < f.seqlen_kv; ++j)
        for (i64 head = 0; head < 2; ++head)
          ASSERT_EQ(visible(f, head, i, j), visible(p, head, i + skipped, j)) << "row " << i << ", key " << j;
    for (i32 j = 0; j < f.seqlen_kv; ++j)
      for (const bool value : {false, true}) ASSERT_EQ(form.key(f, j, value), plain.key(p, j, value)) << "key " << j;
  }
}

TEST(PackForms, SayTheSameAsThePlainOne) {
  for (const auto make : {packed_batch, dense_batch}) {
    const Oracle plain(make());
    for (const MaskForm mask : {MaskForm::spec, MaskForm::intervals, MaskForm::blocks})
      for (const i64 page_size : {0, 1, 7, 64})
        for (const bool cache : {false, true}) {
          SCOPED_TRACE(testing::Message() << "mask form " << static_cast<int>(mask) << ", pages of " << page_size
                                          << (cache ? ", cache" : ""));
          const Oracle form(in_form(make(), {.mask = mask, .page_size = page_size, .cache = cache, .block = 64}));
          expect_same(plain, form, cache);
          EXPECT_EQ(form.batch.find("dout") == nullptr, cache || page_size > 0);
        }
  }
}

TEST(PackForms, SinkAndBiasFitTheBatch) {
  const Oracle form(in_form(dense_batch(), {.sink = true, .bias = true}));
  EXPECT_EQ(form.batch.find("sink")->shape(), std::vector<i64>{2});
  EXPECT_EQ(form.batch.find("bias")->shape(), (std::vector<i64>{2, 2, 160, 160}));
}

TEST(PackForms, RefuseALargeBias) {
  Batch batch;
  for (const char* name : {"q", "k", "v"}) batch.tensors.emplace(name, TensorData(DType::bf16, {1, 8192, 2, 1}));
  try {
    in_form(std::move(batch), {.bias = true});
    FAIL() << "a bias of half a gigabyte was made";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("(1, 2, 8192, 8192) is 536.9 MB"));
  }
}

}  // namespace
}  // namespace iso::tool
