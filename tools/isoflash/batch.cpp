#include "batch.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace iso::tool {
namespace {

struct Rule {
  const char* name;
  bool needed;
  enum { kFloat, kInt32, kInt64 } elements;
  const char *packed_shape, *dense_shape;
};
constexpr const char* kDTypes[] = {"F32, BF16 or F16", "I32", "I64"};

constexpr Rule kRules[] = {
    {batch_name::kQ, true, Rule::kFloat, "(total, num_heads_q, head_dim)", "(batch, seqlen_q, num_heads_q, head_dim)"},
    {batch_name::kK, true, Rule::kFloat, "(total, num_heads_kv, head_dim)", "(batch, seqlen_kv, num_heads_kv, head_dim)"},
    {batch_name::kV, true, Rule::kFloat, "(total, num_heads_kv, head_dim_v)",
     "(batch, seqlen_kv, num_heads_kv, head_dim_v)"},
    {batch_name::kDout, false, Rule::kFloat, "(total, num_heads_q, head_dim_v)",
     "(batch, seqlen_q, num_heads_q, head_dim_v)"},
    {batch_name::kCuSeqlens, false, Rule::kInt32, "(batch + 1)", "(batch + 1)"},
    {batch_name::kNumContext, false, Rule::kInt32, "(batch)", "(batch)"},
    {batch_name::kHistoryLen, false, Rule::kInt32, "(batch)", "(batch)"},
    {batch_name::kNumCandidates, false, Rule::kInt32, "(batch)", "(batch)"},
    {batch_name::kLabels, false, Rule::kInt32, "(total)", "(batch, seqlen_q)"},
    {batch_name::kItemIds, false, Rule::kInt64, "(total)", "(batch, seqlen_q)"},
    {batch_name::kUserIds, false, Rule::kInt64, "(batch)", "(batch)"},
};

std::size_t axes(const std::string& shape) {
  return 1 + static_cast<std::size_t>(std::count(shape.begin(), shape.end(), ','));
}

bool dtype_suits(const Rule& rule, const TensorInfo& t) {
  if (rule.elements == Rule::kInt32) return t.dtype == DType::i32;
  if (rule.elements == Rule::kInt64) return t.dtype == DType::i64;
  return t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16;
}

isoflash::PerSequence per_sequence(const TensorData* t) {
  isoflash::PerSequence value;
  if (t != nullptr) value.values = view(t);
  return value;
}

// A number of the metadata; `fallback` if the key is absent.
Expected<double> metadata_number(const std::string& path, const Batch& batch, const char* key, double fallback) {
  const auto found = batch.metadata.find(key);
  if (found == batch.metadata.end()) return fallback;
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  if (found->second.empty() || *end != '\0' || !std::isfinite(value))
    return raise(errors::FileMetadata{.path = path, .key = key, .got = found->second, .expected = "a finite number"});
  return value;
}

// The value for sequence b; `fallback` where none is given.
i32 value_for(const isoflash_per_sequence& x, i64 b, i32 fallback) {
  if (x.values.rank != 0) return static_cast<const i32*>(x.values.data)[b * x.values.strides[0]];
  return x.value == ISOFLASH_DEFAULT ? fallback : static_cast<i32>(x.value);
}
bool is_given(const isoflash_per_sequence& x) { return x.values.rank != 0 || x.value != ISOFLASH_DEFAULT; }

MaskSpec mask_of(const isoflash::Mask& mask, i64 b, i32 seqlen) {
  MaskSpec m;
  m.seqlen_kv = seqlen;
  m.context_end = value_for(mask.num_context, b, 0);
  const i32 rest = seqlen - m.context_end;
  const i32 history = value_for(mask.history_len, b, rest - value_for(mask.num_candidates, b, 0));
  const i32 candidates = value_for(mask.num_candidates, b, is_given(mask.history_len) ? rest - history : 0);
  m.history_begin = m.context_end;
  m.history_end = m.history_end_slot = m.candidate_begin = m.context_end + history;
  m.candidate_end = m.candidate_begin + candidates;
  m.candidate_group_size = static_cast<i32>(mask.candidate_group_size);
  m.history_kind = static_cast<HistoryKind>(mask.history_kind);
  return m;
}

}  // namespace

isoflash::Tensor view(const TensorData* t) {
  if (t == nullptr) return {};
  std::vector<std::int64_t> shape(t->shape().begin(), t->shape().end());
  return {t->data(), static_cast<isoflash::DType>(t->dtype()), isoflash::Extents(std::span<const std::int64_t>(shape))};
}

const TensorData* Batch::find(const std::string& name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

Expected<Batch> read_batch(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  if (!file) return tl::unexpected(file.error());
  const SafetensorsHeader& header = file->header();
  Batch batch;
  batch.metadata = header.metadata;
  const bool packed = header.find(batch_name::kCuSeqlens) != nullptr;
  for (const Rule& rule : kRules) {
    const TensorInfo* const info = header.find(rule.name);
    if (info == nullptr) {
      if (!rule.needed) continue;
      std::vector<std::string> names;
      for (const TensorInfo& t : header.tensors) names.push_back(t.name);
      const std::string available = names.empty() ? "no tensors" : fmt::format("{}", fmt::join(names, ", "));
      return raise(errors::FileTensorMissing{.path = path, .tensor = rule.name, .available = available});
    }
    if (!dtype_suits(rule, *info))
      return raise(errors::FileTensorDtype{
          .path = path, .tensor = rule.name, .got = info->dtype_name, .expected = kDTypes[rule.elements]});
    const std::string shape = packed ? rule.packed_shape : rule.dense_shape;
    if (info->shape.size() != axes(shape))
      return raise(
          errors::FileTensorShape{.path = path, .tensor = rule.name, .got = shape_text(info->shape), .expected = shape});
    auto data = file->read(*info);
    if (!data) return tl::unexpected(data.error());
    batch.tensors.emplace(rule.name, *std::move(data));
  }
  return batch;
}

Expected<void> write_batch(const std::string& path, const Batch& batch) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, data] : batch.tensors) tensors.push_back({name, &data});
  return write_safetensors(path, std::move(tensors), batch.metadata);
}

Expected<isoflash::Problem> library_problem(const std::string& path, const Batch& batch) {
  isoflash::Problem call;
  call.q = view(batch.find(batch_name::kQ));
  call.k = view(batch.find(batch_name::kK));
  call.v = view(batch.find(batch_name::kV));
  call.cu_seqlens_q = call.cu_seqlens_kv = view(batch.find(batch_name::kCuSeqlens));
  call.mask.num_context = per_sequence(batch.find(batch_name::kNumContext));
  call.mask.history_len = per_sequence(batch.find(batch_name::kHistoryLen));
  call.mask.num_candidates = per_sequence(batch.find(batch_name::kNumCandidates));

  const auto scale = metadata_number(path, batch, "scale", call.scale);
  const auto softcap = metadata_number(path, batch, "softcap", 0);
  const auto group = metadata_number(path, batch, "candidate_group_size", 1);
  for (const auto* number : {&scale, &softcap, &group})
    if (!*number) return tl::unexpected(number->error());
  call.scale = *scale;
  call.softcap = *softcap;
  call.softcap_kind = *softcap != 0 ? isoflash::SoftcapKind::tanh : isoflash::SoftcapKind::none;
  if (*group != std::floor(*group))
    return raise(errors::FileMetadata{.path = path,
                                      .key = "candidate_group_size",
                                      .got = batch.metadata.at("candidate_group_size"),
                                      .expected = "a whole number"});
  call.mask.candidate_group_size = static_cast<std::int64_t>(std::fmax(-1e9, std::fmin(1e9, *group)));

  const auto history = batch.metadata.find("history_kind");
  if (history != batch.metadata.end()) {
    if (history->second == "causal")
      call.mask.history_kind = isoflash::HistoryKind::causal;
    else if (history->second != "bidirectional")
      return raise(errors::FileMetadata{
          .path = path, .key = "history_kind", .got = history->second, .expected = "bidirectional or causal"});
  }
  return call;
}

Tensor core_tensor(const isoflash_tensor& t) {
  Tensor out;
  out.data = t.data;
  out.dtype = static_cast<DType>(t.dtype);
  out.rank = t.rank;
  std::copy(t.shape, t.shape + 4, out.shape);
  std::copy(t.strides, t.strides + 4, out.strides);
  return out;
}

OracleProblem oracle_problem(const isoflash::Problem& call) {
  OracleProblem oracle;
  Problem& p = oracle.problem;
  p.packed = call.cu_seqlens_q.rank != 0;
  const int row_axis = p.packed ? 0 : 1;
  p.batch = p.packed ? call.cu_seqlens_q.shape[0] - 1 : call.q.shape[0];
  p.rows_q = call.q.shape[row_axis];
  p.rows_kv = call.k.shape[row_axis];
  p.num_heads_q = call.q.shape[row_axis + 1];
  p.num_heads_kv = call.k.shape[row_axis + 1];
  p.head_dim = call.q.shape[row_axis + 2];
  p.head_dim_v = call.v.shape[row_axis + 2];
  p.dtype = static_cast<DType>(call.q.dtype);
  p.scale = std::isnan(call.scale) ? 1.0 / std::sqrt(static_cast<double>(p.head_dim)) : call.scale;
  p.softcap_kind = static_cast<SoftcapKind>(call.softcap_kind);
  p.softcap = call.softcap;

  const i32* const cu_seqlens = static_cast<const i32*>(call.cu_seqlens_q.data);
  for (i64 b = 0; b < p.batch; ++b) {
    Sequence s;
    if (p.packed)
      s.q_row_begin = s.kv_row_begin = cu_seqlens[b];
    else
      s.q_batch = s.kv_batch = b;
    s.seqlen_q = s.slot_q = static_cast<i32>(p.packed ? cu_seqlens[b + 1] - cu_seqlens[b] : p.rows_q);
    s.seqlen_kv = s.slot_kv = p.packed ? s.seqlen_q : static_cast<i32>(p.rows_kv);
    s.mask = mask_of(call.mask, b, s.seqlen_kv);
    s.mask.query_offset = s.seqlen_kv - s.seqlen_q;
    oracle.sequences.push_back(s);
  }
  return oracle;
}

}  // namespace iso::tool
