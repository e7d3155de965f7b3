#include "validate/shapes.h"

#include <fmt/format.h>

#include "validate/broadcast.h"
#include "validate/overlap.h"
#include "validate/tensor.h"

namespace iso {
namespace {

// pages and page_size stand where k and v of another layout have batch and rows.
enum class Axis { batch, rows_q, rows_kv, heads_q, heads_kv, dim, dim_v, bias_keys, pages, page_size };

// Whose layout a tensor follows: dense, packed or, for keys, paged. A sink has neither batch nor rows.
enum class Follows { queries, keys, nothing };

// q's dtype, or float32 whatever q is.
enum class Type { data, lse, score_term };

struct Rule {
  const char* name;
  const char* role;
  Follows follows;
  bool gradient;  // written by the backward
  Type type;
  i32 rank;  // dense; packed has one axis less, the batch
  Axis axes[4];
};

const Rule& rule(TensorId id) {
  using enum Axis;
  using enum Follows;
  using enum Type;
  static constexpr Rule kRules[] = {
      {"q", "queries", queries, false, data, 4, {batch, rows_q, heads_q, dim}},
      {"k", "keys", keys, false, data, 4, {batch, rows_kv, heads_kv, dim}},
      {"v", "values", keys, false, data, 4, {batch, rows_kv, heads_kv, dim_v}},
      {"out", "output", queries, false, data, 4, {batch, rows_q, heads_q, dim_v}},
      {"lse", "log-sum-exp of each row", queries, false, lse, 3, {batch, heads_q, rows_q}},
      {"dout", "gradient of out", queries, false, data, 4, {batch, rows_q, heads_q, dim_v}},
      {"dlse", "gradient of lse", queries, false, lse, 3, {batch, heads_q, rows_q}},
      {"dq", "gradient of q", queries, true, data, 4, {batch, rows_q, heads_q, dim}},
      {"dk", "gradient of k", keys, true, data, 4, {batch, rows_kv, heads_kv, dim}},
      {"dv", "gradient of v", keys, true, data, 4, {batch, rows_kv, heads_kv, dim_v}},
      {"k_new", "keys of the queries", queries, false, data, 4, {batch, rows_q, heads_kv, dim}},
      {"v_new", "values of the queries", queries, false, data, 4, {batch, rows_q, heads_kv, dim_v}},
      {"sink", "sink logit of each head", nothing, false, score_term, 1, {heads_q}},
      {"bias", "added to the scores", queries, false, score_term, 4, {batch, heads_q, rows_q, bias_keys}},
      {"dsink", "gradient of sink", nothing, true, score_term, 1, {heads_q}},
      {"dbias", "gradient of bias", queries, true, score_term, 4, {batch, heads_q, rows_q, bias_keys}},
  };
  return kRules[static_cast<int>(id)];
}

bool packed(const Problem& p, const Rule& r) {
  return r.follows == Follows::queries ? p.packed : r.follows == Follows::keys && p.kv_layout == KvLayout::packed;
}

const char* axis_name(const Problem& p, Axis axis) {
  switch (axis) {
    case Axis::batch: return "batch";
    case Axis::rows_q: return p.packed ? "total_q" : "seqlen_q";
    case Axis::rows_kv: return p.kv_layout == KvLayout::packed ? "total_kv" : "seqlen_kv";
    case Axis::heads_q: return "num_heads_q";
    case Axis::heads_kv: return "num_heads_kv";
    case Axis::dim: return "head_dim";
    case Axis::dim_v: return "head_dim_v";
    case Axis::bias_keys: return "seqlen_kv";
    case Axis::pages: return "num_pages";
    case Axis::page_size: return "page_size";
  }
  return "";
}

// The tensor that defines the axis.
const char* defined_by(const Problem& p, Axis axis) {
  switch (axis) {
    case Axis::batch: return p.packed ? "cu_seqlens_q" : "q";
    case Axis::rows_kv:
    case Axis::heads_kv:
    case Axis::pages:
    case Axis::page_size: return "k";
    case Axis::dim_v: return "v";
    case Axis::bias_keys: return "bias";
    default: return "q";
  }
}

i64 extent(const Problem& p, Axis axis) {
  switch (axis) {
    case Axis::batch: return p.batch;
    case Axis::rows_q: return p.rows_q;
    case Axis::rows_kv:
    case Axis::page_size: return p.rows_kv;
    case Axis::heads_q: return p.num_heads_q;
    case Axis::heads_kv: return p.num_heads_kv;
    case Axis::dim: return p.head_dim;
    case Axis::dim_v: return p.head_dim_v;
    case Axis::bias_keys: return 0;  // the problem's bias says; see check_problem_bias
    case Axis::pages: return p.num_pages;
  }
  return 0;
}

i32 rank(const Problem& p, const Rule& r) { return r.rank - (packed(p, r) ? 1 : 0); }

// Axis n of the tensor in the problem's layout.
Axis axis_at(const Problem& p, const Rule& r, i32 n) {
  if (r.follows == Follows::keys && p.kv_layout == KvLayout::paged && n < 2) return n == 0 ? Axis::pages : Axis::page_size;
  return r.axes[packed(p, r) ? n + 1 : n];
}

std::string axes_text(const Problem& p, const Rule& r) {
  std::string text;
  for (i32 n = 0; n < rank(p, r); ++n) text += fmt::format("{}{}", n == 0 ? "" : ", ", axis_name(p, axis_at(p, r, n)));
  return text;
}

// What the plan wants of the tensor; no data.
Tensor wanted(const Problem& p, const Rule& r) {
  Tensor t;
  t.rank = rank(p, r);
  t.dtype = r.type == Type::data ? p.dtype : DType::f32;
  t.device = p.device;
  for (i32 n = 0; n < t.rank; ++n) t.shape[n] = extent(p, axis_at(p, r, n));
  return t;
}

bool same_device(Device a, Device b) { return a.type == b.type && (a.type == DeviceType::cpu || a.index == b.index); }

Expected<void> check_type_and_device(const Problem& p, const Rule& r, const Tensor& t) {
  const Tensor want = wanted(p, r);
  if (t.dtype != want.dtype) {
    if (r.type == Type::lse) return raise(errors::LseDtype{.tensor = r.name, .got = dtype_name(t.dtype)});
    if (r.type == Type::score_term) return raise(errors::ScoreTermDtype{.tensor = r.name, .got = dtype_name(t.dtype)});
    return raise(errors::DtypeMismatch{
        .tensor = r.name, .got = dtype_name(t.dtype), .other = "q", .expected = dtype_name(want.dtype)});
  }
  if (!same_device(t.device, p.device))
    return raise(errors::DeviceMismatch{
        .tensor = r.name, .got = device_text(t.device), .other = "q", .expected = device_text(p.device)});
  return {};
}

}  // namespace

const char* tensor_name(TensorId id) { return rule(id).name; }

Expected<void> check_problem_tensor(const Problem& p, TensorId id, const Tensor& t) {
  const Rule& r = rule(id);
  const Tensor want = wanted(p, r);
  if (t.rank != want.rank) {
    if (packed(p, r) && t.rank == r.rank)
      return raise(errors::PackedRank{.tensor = r.name, .got = t.rank, .expected = axes_text(p, r)});
    return raise(errors::RankMismatch{
        .tensor = r.name, .got = t.rank, .expected = fmt::format("{} ({})", want.rank, axes_text(p, r))});
  }
  for (i32 n = 0; n < t.rank; ++n) {
    if (t.shape[n] == want.shape[n]) continue;
    const Axis axis = axis_at(p, r, n);
    const char* name = axis_name(p, axis);
    return raise(errors::ShapeMismatch{.tensor = r.name,
                                       .axis = fmt::format("{} (axis {} of shape {})", name, n, shape_text(t)),
                                       .got = t.shape[n],
                                       .expected = want.shape[n],
                                       .because = fmt::format("{} of {} is {}", name, defined_by(p, axis), want.shape[n])});
  }
  return check_type_and_device(p, r, t);
}

Expected<void> check_problem_bias(const Problem& p, const Tensor& bias, i64 longest) {
  const Rule& r = rule(TensorId::bias);
  // Where all sequences share one axis of keys, the bias has just that.
  const bool same_axis = !p.packed && p.kv_layout == KvLayout::dense && !p.new_keys;
  BroadcastAxis axes[] = {{"batch", p.batch, true},
                          {"num_heads_q", p.num_heads_q, true},
                          {axis_name(p, Axis::rows_q), p.rows_q, true},
                          {"seqlen_kv", same_axis ? p.rows_kv : kAnyExtent, false}};
  const auto expected = std::span<const BroadcastAxis>(axes).subspan(p.packed ? 1 : 0);
  const bool too_short = bias.rank > 0 && bias.shape[bias.rank - 1] < longest;
  if (!fits(bias, expected) || too_short) {
    const std::string keys = same_axis ? "" : fmt::format(", the last at least {}, the longest sequence's keys", longest);
    return raise(errors::BiasShape{.got = shape_text(bias), .expected = axes_text(expected) + keys});
  }
  return check_type_and_device(p, r, bias);
}

Expected<void> check_call_tensor(const Problem& p, const ForwardTensors& layout, TensorId id, const Tensor& t) {
  const Rule& r = rule(id);
  Tensor want = wanted(p, r);
  if (id == TensorId::bias || id == TensorId::dbias)
    for (i32 n = 0; n < want.rank; ++n) want.shape[n] = layout.bias.shape[n];
  bool same_shape = t.rank == want.rank;
  for (i32 n = 0; n < t.rank && same_shape; ++n) same_shape = t.shape[n] == want.shape[n];
  if (!same_shape)
    return raise(errors::PlanShape{
        .tensor = r.name, .got = shape_text(t), .planned = fmt::format("{} = ({})", shape_text(want), axes_text(p, r))});
  if (t.dtype != want.dtype)
    return raise(errors::PlanDtype{.tensor = r.name, .got = dtype_name(t.dtype), .planned = dtype_name(want.dtype)});
  if (!same_device(t.device, p.device))
    return raise(errors::PlanDevice{.tensor = r.name, .got = device_text(t.device), .planned = device_text(p.device)});
  return {};
}

Expected<void> check_written_layout(const Problem& p, TensorId id, const Tensor& t) {
  if (!has_elements(t)) return {};
  const Rule& r = rule(id);
  const auto axis_text = [&](i32 n) { return fmt::format("{} (axis {})", axis_name(p, axis_at(p, r, n)), n); };
  for (i32 n = 0; n < t.rank; ++n) {
    if (t.shape[n] == 1 || t.strides[n] > 0) continue;
    std::string contiguous = "none";
    for (i32 other = 0; other < t.rank; ++other)
      if (t.strides[other] == 1 && t.shape[other] > 1) contiguous = axis_text(other);
    if (r.gradient)
      return raise(errors::GradientLayout{.tensor = r.name,
                                          .role = r.role,
                                          .shape = shape_text(t),
                                          .strides = strides_text(t),
                                          .dtype = dtype_name(t.dtype),
                                          .axis = axis_text(n),
                                          .stride = t.strides[n],
                                          .contiguous_axis = contiguous});
    return raise(errors::OutputLayout{.tensor = r.name,
                                      .role = r.role,
                                      .shape = shape_text(t),
                                      .strides = strides_text(t),
                                      .dtype = dtype_name(t.dtype),
                                      .axis = axis_text(n),
                                      .stride = t.strides[n],
                                      .contiguous_axis = contiguous});
  }
  if (overlaps_itself(t))
    return raise(errors::OutputSelfOverlap{.tensor = r.name, .shape = shape_text(t), .strides = strides_text(t)});
  return {};
}

}  // namespace iso
