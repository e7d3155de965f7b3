#include "batch.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace iso::tool {
namespace {

constexpr const char* kForms[] = {"forward", "backward"};
constexpr const char* kKinds[] = {"mask", "full", "diag"};

enum class Elements { real, f32, i32, i64 };
constexpr const char* kDTypes[] = {"F32, BF16 or F16", "F32", "I32", "I64"};

// How a tensor's rows lie decides its axes.
enum class Rows { queries, keys, none };

struct Rule {
  std::string name;
  Elements elements;
  Rows rows;
  const char* shape;  // dense, or whatever the layout
  const char* packed = nullptr;
  const char* paged = nullptr;
};

std::vector<Rule> make_rules() {
  using namespace batch_name;
  std::vector<Rule> rules{
      {kQ, Elements::real, Rows::queries, "(batch, seqlen_q, num_heads_q, head_dim)", "(total_q, num_heads_q, head_dim)"},
      {kK, Elements::real, Rows::keys, "(batch, seqlen_kv, num_heads_kv, head_dim)", "(total_kv, num_heads_kv, head_dim)",
       "(num_pages, page_size, num_heads_kv, head_dim)"},
      {kV, Elements::real, Rows::keys, "(batch, seqlen_kv, num_heads_kv, head_dim_v)",
       "(total_kv, num_heads_kv, head_dim_v)", "(num_pages, page_size, num_heads_kv, head_dim_v)"},
      {kKNew, Elements::real, Rows::queries, "(batch, seqlen_q, num_heads_kv, head_dim)",
       "(total_q, num_heads_kv, head_dim)"},
      {kVNew, Elements::real, Rows::queries, "(batch, seqlen_q, num_heads_kv, head_dim_v)",
       "(total_q, num_heads_kv, head_dim_v)"},
      {kDout, Elements::real, Rows::queries, "(batch, seqlen_q, num_heads_q, head_dim_v)",
       "(total_q, num_heads_q, head_dim_v)"},
      {kRowIntervals, Elements::i32, Rows::queries, "(batch, num_heads_q, seqlen_q, 2 n)", "(num_heads_q, total_q, 2 n)"},
      {kBias, Elements::f32, Rows::queries, "(batch, num_heads_q, seqlen_q, seqlen_kv)",
       "(num_heads_q, total_q, longest keys)"},
      {kSink, Elements::f32, Rows::none, "(num_heads_q)"},
      {kBlockTable, Elements::i32, Rows::none, "(batch, max_pages)"},
      {kLabels, Elements::i32, Rows::queries, "(batch, seqlen_q)", "(total_q)"},
      {kItemIds, Elements::i64, Rows::queries, "(batch, seqlen_q)", "(total_q)"},
      {kUserIds, Elements::i64, Rows::none, "(batch)"},
  };
  for (const char* name : {kCuSeqlens, kCuSeqlensQ, kCuSeqlensKv})
    rules.push_back({name, Elements::i32, Rows::none, "(batch + 1)"});
  for (const char* name : {kSequsedQ, kSequsedKv, kNumContext, kHistoryLen, kNumCandidates, kHistoryBegin, kHistoryEnd,
                           kCandidateBegin, kQueryOffset})
    rules.push_back({name, Elements::i32, Rows::none, "(batch)"});
  constexpr const char *kBlocks = "(batch, num_heads_q, num_blocks)", *kPackedBlocks = "(num_heads_q, total_blocks)";
  for (const char* form : kForms)
    for (const char* kind : kKinds) {
      rules.push_back({block_list_name(form, kind, "counts"), Elements::i32, Rows::queries, kBlocks, kPackedBlocks});
      rules.push_back({block_list_name(form, kind, "indices"), Elements::i32, Rows::queries,
                       "(batch, num_heads_q, num_blocks, width)", "(num_heads_q, total_blocks, width)"});
    }
  for (const char* name : {kValidUpper, kValidLower})
    rules.push_back({name, Elements::i32, Rows::queries, kBlocks, kPackedBlocks});
  return rules;
}

bool needed(const Rule& rule) {
  return rule.name == batch_name::kQ || rule.name == batch_name::kK || rule.name == batch_name::kV;
}

std::size_t axes(const std::string& shape) {
  return 1 + static_cast<std::size_t>(std::count(shape.begin(), shape.end(), ','));
}

bool dtype_suits(Elements elements, const TensorInfo& t) {
  switch (elements) {
    case Elements::i32: return t.dtype == DType::i32;
    case Elements::i64: return t.dtype == DType::i64;
    case Elements::f32: return t.dtype == DType::f32;
    case Elements::real: break;
  }
  return t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16;
}

std::string expected_shape(const Rule& rule, const SafetensorsHeader& header) {
  const auto has = [&](const char* name) { return header.find(name) != nullptr; };
  const bool paged = has(batch_name::kBlockTable), both = has(batch_name::kCuSeqlens);
  if (rule.rows == Rows::queries && (both || has(batch_name::kCuSeqlensQ))) return rule.packed;
  if (rule.rows == Rows::keys && paged) return rule.paged;
  if (rule.rows == Rows::keys && (both || has(batch_name::kCuSeqlensKv))) return rule.packed;
  return rule.shape;
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "no tensors" : out;
}

// Numbers and words of the metadata.
class Metadata {
 public:
  Metadata(const std::string& path, const Batch& batch) : path_(path), batch_(batch) {}

  Expected<double> number(const char* key, double fallback) const {
    const std::string* const text = find(key);
    if (text == nullptr) return fallback;
    char* end = nullptr;
    const double value = std::strtod(text->c_str(), &end);
    if (text->empty() || *end != '\0' || !std::isfinite(value)) return wrong(key, "a finite number");
    return value;
  }
  Expected<i64> whole(const char* key, i64 fallback) const {
    const auto value = number(key, static_cast<double>(fallback));
    if (!value) return tl::unexpected(value.error());
    if (*value != std::floor(*value)) return wrong(key, "a whole number");
    return static_cast<i64>(std::fmax(-1e9, std::fmin(1e9, *value)));  // the library judges the rest
  }
  // Which of `words` the entry is; 0 if it is absent.
  Expected<i32> word(const char* key, const std::vector<std::string>& words) const {
    const std::string* const text = find(key);
    if (text == nullptr) return 0;
    const auto found = std::find(words.begin(), words.end(), *text);
    if (found == words.end()) return wrong(key, joined(words));
    return static_cast<i32>(found - words.begin());
  }

 private:
  const std::string* find(const char* key) const {
    const auto found = batch_.metadata.find(key);
    return found == batch_.metadata.end() ? nullptr : &found->second;
  }
  tl::unexpected<Error> wrong(const char* key, const std::string& expected) const {
    return raise(errors::FileMetadata{.path = path_, .key = key, .got = *find(key), .expected = expected});
  }

  const std::string& path_;
  const Batch& batch_;
};

Expected<void> read_scores(const Metadata& metadata, isoflash::Problem& call) {
  const auto scale = metadata.number("scale", call.scale), softcap = metadata.number("softcap", 0);
  const auto kind = metadata.word("softcap_kind", {"tanh", "soft_sign"});
  if (!scale) return tl::unexpected(scale.error());
  if (!softcap) return tl::unexpected(softcap.error());
  if (!kind) return tl::unexpected(kind.error());
  call.scale = *scale;
  call.softcap = *softcap;
  if (*softcap != 0) call.softcap_kind = *kind == 0 ? isoflash::SoftcapKind::tanh : isoflash::SoftcapKind::soft_sign;
  return {};
}

Expected<void> read_mask(const Metadata& metadata, const Batch& batch, isoflash::Mask& mask) {
  const auto kind = metadata.word("history_kind", {"bidirectional", "causal", "window"});
  if (!kind) return tl::unexpected(kind.error());
  mask.history_kind = static_cast<isoflash::HistoryKind>(*kind);
  for (const auto& [key, field] : {std::pair{"candidate_group_size", &mask.candidate_group_size},
                                   {"window_left", &mask.window_left},
                                   {"window_right", &mask.window_right}}) {
    const auto value = metadata.whole(key, *field);
    if (!value) return tl::unexpected(value.error());
    *field = *value;
  }
  for (const auto& [name, field] : {std::pair{batch_name::kNumContext, &mask.num_context},
                                    {batch_name::kHistoryLen, &mask.history_len},
                                    {batch_name::kNumCandidates, &mask.num_candidates},
                                    {batch_name::kHistoryBegin, &mask.history_begin},
                                    {batch_name::kHistoryEnd, &mask.history_end},
                                    {batch_name::kCandidateBegin, &mask.candidate_begin},
                                    {batch_name::kQueryOffset, &mask.query_offset}})
    if (const TensorData* const values = batch.find(name)) field->values = view(values);
  return {};
}

Expected<void> read_blocks(const Metadata& metadata, const Batch& batch, isoflash::BlockSparsity& blocks) {
  for (const auto& [key, field] : {std::pair{"block_m", &blocks.block_m}, {"block_n", &blocks.block_n}}) {
    const auto value = metadata.whole(key, 0);
    if (!value) return tl::unexpected(value.error());
    *field = *value;
  }
  isoflash::BlockLists* const forms[] = {&blocks.forward, &blocks.backward};
  for (int form = 0; form < 2; ++form) {
    isoflash::BlockList* const lists[] = {&forms[form]->mask, &forms[form]->full, &forms[form]->diag};
    for (int kind = 0; kind < 3; ++kind) {
      lists[kind]->counts = view(batch.find(block_list_name(kForms[form], kKinds[kind], "counts")));
      lists[kind]->indices = view(batch.find(block_list_name(kForms[form], kKinds[kind], "indices")));
    }
  }
  blocks.valid_upper = view(batch.find(batch_name::kValidUpper));
  blocks.valid_lower = view(batch.find(batch_name::kValidLower));
  return {};
}

}  // namespace

std::string block_list_name(const char* form, const char* kind, const char* part) {
  return fmt::format("blocks.{}.{}.{}", form, kind, part);
}

isoflash::Tensor view(const TensorData* t) {
  if (t == nullptr) return {};
  std::vector<std::int64_t> shape(t->shape().begin(), t->shape().end());
  return {t->data(), static_cast<isoflash::DType>(t->dtype()), isoflash::Extents(std::span<const std::int64_t>(shape))};
}

TensorData memory_for(const isoflash::Tensor& t) {
  return TensorData(static_cast<DType>(t.dtype), std::vector<i64>(t.shape, t.shape + t.rank));
}

const TensorData* Batch::find(const std::string& name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

std::string Batch::names() const {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors) all.push_back(name);
  return joined(all);
}

Expected<Batch> read_batch(const std::string& path) {
  static const std::vector<Rule> rules = make_rules();
  const auto file = SafetensorsFile::open(path);
  if (!file) return tl::unexpected(file.error());
  const SafetensorsHeader& header = file->header();
  Batch batch;
  batch.metadata = header.metadata;
  for (const Rule& rule : rules) {
    const TensorInfo* const info = header.find(rule.name);
    if (info == nullptr) {
      if (!needed(rule)) continue;
      std::vector<std::string> names;
      for (const TensorInfo& t : header.tensors) names.push_back(t.name);
      return raise(errors::FileTensorMissing{.path = path, .tensor = rule.name, .available = joined(names)});
    }
    if (!dtype_suits(rule.elements, *info))
      return raise(errors::FileTensorDtype{.path = path,
                                           .tensor = rule.name,
                                           .got = info->dtype_name,
                                           .expected = kDTypes[static_cast<int>(rule.elements)]});
    const std::string shape = expected_shape(rule, header);
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
  using namespace batch_name;
  isoflash::Problem call;
  for (const auto& [name, tensor] : {std::pair{kQ, &call.q},
                                     {kK, &call.k},
                                     {kV, &call.v},
                                     {kSequsedQ, &call.seqused_q},
                                     {kSequsedKv, &call.seqused_kv},
                                     {kRowIntervals, &call.row_intervals},
                                     {kBlockTable, &call.block_table},
                                     {kKNew, &call.k_new},
                                     {kVNew, &call.v_new},
                                     {kSink, &call.sink},
                                     {kBias, &call.bias}})
    *tensor = view(batch.find(name));
  // Offsets of queries and keys alike, unless there are some of their own, or pages.
  const auto offsets = [&](const char* own) { return view(batch.find(own) ? batch.find(own) : batch.find(kCuSeqlens)); };
  call.cu_seqlens_q = offsets(kCuSeqlensQ);
  call.cu_seqlens_kv = batch.paged() ? view(batch.find(kCuSeqlensKv)) : offsets(kCuSeqlensKv);

  const Metadata metadata(path, batch);
  if (const auto read = read_scores(metadata, call); !read) return tl::unexpected(read.error());
  if (const auto read = read_mask(metadata, batch, call.mask); !read) return tl::unexpected(read.error());
  if (const auto read = read_blocks(metadata, batch, call.blocks); !read) return tl::unexpected(read.error());

  // out is (..., num_heads_q, head_dim_v); lse is (batch, num_heads_q, seqlen_q), packed (num_heads_q, total_q).
  const int head_axis = call.q.rank - 2;
  std::vector<std::int64_t> out_shape(call.q.shape, call.q.shape + call.q.rank);
  out_shape.back() = call.v.shape[call.v.rank - 1];
  std::vector<std::int64_t> lse_shape{call.q.shape[head_axis], call.q.shape[head_axis - 1]};
  if (head_axis == 2) lse_shape.insert(lse_shape.begin(), call.q.shape[0]);
  const auto described = [](isoflash::DType dtype, std::span<const std::int64_t> shape) {
    return isoflash::Tensor(static_cast<void*>(nullptr), dtype, isoflash::Extents(shape));
  };
  call.out = described(static_cast<isoflash::DType>(call.q.dtype), out_shape);
  call.lse = described(isoflash::DType::f32, lse_shape);
  return call;
}

}  // namespace iso::tool
