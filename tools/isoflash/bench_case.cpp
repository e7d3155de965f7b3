#include "bench_case.h"

#include <cstring>

#include "hash.h"
#include "pack.h"

namespace iso::tool {
namespace {

constexpr auto kAll = HistoryKind::bidirectional;

TensorData normal(DType dtype, std::vector<i64> shape, float deviation, u64 seed) {
  TensorData tensor(dtype, std::move(shape));
  const auto fill = [&](auto elements) {
    using T = typename decltype(elements)::value_type;
    const float unit = deviation / kHashNormalDeviation;
    for (std::size_t n = 0; n < elements.size(); ++n) elements[n] = from_float<T>(unit * hash_normal(hash_of(seed, n)));
  };
  if (dtype == DType::bf16)
    fill(tensor.as<bf16>());
  else if (dtype == DType::f16)
    fill(tensor.as<f16>());
  else
    fill(tensor.as<float>());
  return tensor;
}

TensorData repeated(i64 count, i64 value) {
  TensorData tensor(DType::i32, {count});
  for (i32& x : tensor.as<i32>()) x = static_cast<i32>(value);
  return tensor;
}

Batch sessions(const BenchCase& c, DType dtype, u64 seed) {
  PackOptions options;
  options.num_heads_q = c.num_heads_q;
  options.num_heads_kv = c.num_heads_kv;
  options.head_dim = options.head_dim_v = c.head_dim;
  options.dtype = dtype;
  options.seed = seed;
  const InteractionLog log = generate_interactions(32, 7);  // the same lengths for every seed
  return pack_batch(log, make_sessions(log, options), options, "generated", [](i64, i64) {});
}

// Cases in their plain form.
std::vector<BenchCase> plain_cases() {
  return {
      {"dense", "2 x (1024 history + 64 candidates)", 4, 2, 128, 2, 0, 1024, 64, 1, kAll},
      {"nano-small", "4 x (1024 history + 64 candidates)", 4, 2, 128, 4, 0, 1024, 64, 1, kAll},
      {"home-small", "1 x (1024 history + 128 candidates), 20 query heads", 20, 4, 128, 1, 0, 1024, 128, 1, kAll},
      {"packed", "32 made-up user sessions, packed", 4, 2, 128, 0, 0, 0, 0, 1, kAll},
      {"groups", "2 x (2 context + 1022 history + 128 candidates in groups of 8)", 4, 2, 128, 2, 2, 1022, 128, 8, kAll},
      {"causal-2k", "1 x 2048, causal", 4, 4, 128, 1, 0, 2048, 0, 1, HistoryKind::causal},
      {"full-1k-d64", "2 x 1024, no mask, head_dim 64", 8, 8, 64, 2, 0, 1024, 0, 1, kAll},
      {"score-4k", "64 candidates against 4096 history keys in the same tensor", 4, 2, 128, 1, 0, 4096, 64, 1, kAll, true},
      {"score-16k", "64 candidates against 16384 history keys in the same tensor", 4, 2, 128, 1, 0, 16384, 64, 1, kAll,
       true},
  };
}

BenchCase in_other_form(const BenchCase& plain, const std::string& name, const std::string& about, FormOptions form,
                        int num_splits = 0) {
  BenchCase c = plain;
  c.name = name;
  c.about = about;
  c.plain = plain.name;
  c.form = form;
  c.num_splits = num_splits;
  c.candidates_only = false;  // the form itself leaves the others out
  return c;
}

// Each plain case with its other forms behind it, so that they run next to each other.
std::vector<BenchCase> all_cases() {
  std::vector<BenchCase> cases;
  for (const BenchCase& plain : plain_cases()) {
    cases.push_back(plain);
    const auto add = [&](const char* suffix, const char* about, FormOptions form, int num_splits = 0) {
      cases.push_back(in_other_form(plain, plain.name + suffix, plain.name + about, form, num_splits));
    };
    if (plain.name == "dense" || plain.name == "packed") {
      add("-intervals", " as row intervals", {.mask = MaskForm::intervals});
      add("-blocks", " as block lists of 128", {.mask = MaskForm::blocks});
      add("-paged128", " with keys in pages of 128, forward only", {.page_size = 128});
      add("-paged16", " with keys in pages of 16, forward only", {.page_size = 16});
    }
    if (plain.candidates_only) {
      add("-cache", " with the history as a cache, forward only", {.cache = true}, 1);
      add("-cache-splits2", " with the history as a cache, in 2 splits, forward only", {.cache = true}, 2);
    }
  }
  return cases;
}

}  // namespace

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> cases = all_cases();
  return cases;
}

Batch make_bench_batch(const BenchCase& c, DType dtype, u64 seed) {
  if (c.batch == 0) return in_form(sessions(c, dtype, seed), c.form);
  const i64 rows = c.context + c.history + c.candidates, queries = c.candidates_only ? c.candidates : rows;
  Batch batch;
  const auto add = [&](const char* name, i64 seqlen, i64 heads, float deviation) {
    batch.tensors.emplace(name, normal(dtype, {c.batch, seqlen, heads, c.head_dim}, deviation, hash_of(seed, name)));
  };
  add(batch_name::kQ, queries, c.num_heads_q, 2);  // scores of standard deviation 2, as in pack_batch()
  add(batch_name::kK, rows, c.num_heads_kv, 1);
  add(batch_name::kV, rows, c.num_heads_kv, 1);
  add(batch_name::kDout, queries, c.num_heads_q, 1);
  batch.tensors.emplace(batch_name::kNumContext, repeated(c.batch, c.context));
  batch.tensors.emplace(batch_name::kHistoryLen, repeated(c.batch, c.history));
  batch.tensors.emplace(batch_name::kNumCandidates, repeated(c.batch, c.candidates));
  batch.metadata["history_kind"] = c.history_kind == HistoryKind::causal ? "causal" : "bidirectional";
  batch.metadata["candidate_group_size"] = std::to_string(c.group_size);
  return in_form(std::move(batch), c.form);
}

Batch copy_batch(const Batch& batch) {
  Batch copy;
  copy.metadata = batch.metadata;
  for (const auto& [name, tensor] : batch.tensors) {
    TensorData data(tensor.dtype(), tensor.shape());
    std::memcpy(data.data(), tensor.data(), tensor.bytes());
    copy.tensors.emplace(name, std::move(data));
  }
  return copy;
}

}  // namespace iso::tool
