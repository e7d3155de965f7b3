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

}  // namespace

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> cases{
      {"dense", "2 x (1024 history + 64 candidates)", 4, 2, 128, 2, 0, 1024, 64, 1, kAll},
      {"nano-small", "4 x (1024 history + 64 candidates)", 4, 2, 128, 4, 0, 1024, 64, 1, kAll},
      {"home-small", "1 x (1024 history + 128 candidates), 20 query heads", 20, 4, 128, 1, 0, 1024, 128, 1, kAll},
      {"packed", "32 made-up user sessions, packed", 4, 2, 128, 0, 0, 0, 0, 1, kAll},
      {"groups", "2 x (2 context + 1022 history + 128 candidates in groups of 8)", 4, 2, 128, 2, 2, 1022, 128, 8, kAll},
      {"causal-2k", "1 x 2048, causal", 4, 4, 128, 1, 0, 2048, 0, 1, HistoryKind::causal},
      {"full-1k-d64", "2 x 1024, no mask, head_dim 64", 8, 8, 64, 2, 0, 1024, 0, 1, kAll},
  };
  return cases;
}

Batch make_bench_batch(const BenchCase& c, DType dtype, u64 seed) {
  if (c.batch == 0) return sessions(c, dtype, seed);
  const i64 rows = c.context + c.history + c.candidates;
  Batch batch;
  const auto add = [&](const char* name, i64 heads, float deviation) {
    batch.tensors.emplace(name, normal(dtype, {c.batch, rows, heads, c.head_dim}, deviation, hash_of(seed, name)));
  };
  add(batch_name::kQ, c.num_heads_q, 2);  // scores of standard deviation 2, as in pack_batch()
  add(batch_name::kK, c.num_heads_kv, 1);
  add(batch_name::kV, c.num_heads_kv, 1);
  add(batch_name::kDout, c.num_heads_q, 1);
  batch.tensors.emplace(batch_name::kNumContext, repeated(c.batch, c.context));
  batch.tensors.emplace(batch_name::kHistoryLen, repeated(c.batch, c.history));
  batch.tensors.emplace(batch_name::kNumCandidates, repeated(c.batch, c.candidates));
  batch.metadata["history_kind"] = c.history_kind == HistoryKind::causal ? "causal" : "bidirectional";
  batch.metadata["candidate_group_size"] = std::to_string(c.group_size);
  return batch;
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
