#include "validate/shapes.h"

#include <fmt/format.h>

#include "validate/overlap.h"
#include "validate/tensor.h"

namespace iso {
namespace {

enum class Axis { batch, rows_q, rows_kv, heads_q, heads_kv, dim, dim_v };

struct Rule {
  const char* name;
  const char* role;
  bool gradient;   // written by the backward
  bool statistic;  // lse and its gradient: float32 whatever q is
  i32 rank;        // dense; packed has one axis less, the batch
  Axis axes[4];
};

const Rule& rule(TensorId id) {
  using enum Axis;
  static constexpr Rule kRules[] = {
      {"q", "queries", false, false, 4, {batch, rows_q, heads_q, dim}},
      {"k", "keys", false, false, 4, {batch, rows_kv, heads_kv, dim}},
      {"v", "values", false, false, 4, {batch, rows_kv, heads_kv, dim_v}},
      {"out", "output", false, false, 4, {batch, rows_q, heads_q, dim_v}},
      {"lse", "log-sum-exp of each row", false, true, 3, {batch, heads_q, rows_q}},
      {"dout", "gradient of out", false, false, 4, {batch, rows_q, heads_q, dim_v}},
      {"dlse", "gradient of lse", false, true, 3, {batch, heads_q, rows_q}},
      {"dq", "gradient of q", true, false, 4, {batch, rows_q, heads_q, dim}},
      {"dk", "gradient of k", true, false, 4, {batch, rows_kv, heads_kv, dim}},
      {"dv", "gradient of v", true, false, 4, {batch, rows_kv, heads_kv, dim_v}},
  };
  return kRules[static_cast<int>(id)];
}

const char* axis_name(Axis axis, bool packed) {
  switch (axis) {
    case Axis::batch: return "batch";
    case Axis::rows_q: return packed ? "total_q" : "seqlen_q";
    case Axis::rows_kv: return packed ? "total_kv" : "seqlen_kv";
    case Axis::heads_q: return "num_heads_q";
    case Axis::heads_kv: return "num_heads_kv";
    case Axis::dim: return "head_dim";
    case Axis::dim_v: return "head_dim_v";
  }
  return "";
}

// The tensor whose shape defines the axis.
const char* defined_by(Axis axis) {
  if (axis == Axis::rows_kv || axis == Axis::heads_kv) return "k";
  return axis == Axis::dim_v ? "v" : "q";
}

i64 extent(const Problem& p, Axis axis) {
  switch (axis) {
    case Axis::batch: return p.batch;
    case Axis::rows_q: return p.rows_q;
    case Axis::rows_kv: return p.rows_kv;
    case Axis::heads_q: return p.num_heads_q;
    case Axis::heads_kv: return p.num_heads_kv;
    case Axis::dim: return p.head_dim;
    case Axis::dim_v: return p.head_dim_v;
  }
  return 0;
}

// Axis n of the tensor in the problem's layout.
Axis axis_at(const Rule& r, bool packed, i32 n) { return r.axes[packed ? n + 1 : n]; }

std::string axes_text(const Rule& r, bool packed) {
  std::string text;
  for (i32 n = 0; n < r.rank - (packed ? 1 : 0); ++n) {
    if (n > 0) text += ", ";
    text += axis_name(axis_at(r, packed, n), packed);
  }
  return text;
}

// What the plan wants of the tensor; no data.
Tensor wanted(const Problem& p, const Rule& r) {
  Tensor t;
  t.rank = r.rank - (p.packed ? 1 : 0);
  t.dtype = r.statistic ? DType::f32 : p.dtype;
  t.device = p.device;
  for (i32 n = 0; n < t.rank; ++n) t.shape[n] = extent(p, axis_at(r, p.packed, n));
  return t;
}

bool same_device(Device a, Device b) { return a.type == b.type && (a.type == DeviceType::cpu || a.index == b.index); }

}  // namespace

const char* tensor_name(TensorId id) { return rule(id).name; }

Expected<void> check_problem_tensor(const Problem& p, TensorId id, const Tensor& t) {
  const Rule& r = rule(id);
  const Tensor want = wanted(p, r);
  if (t.rank != want.rank) {
    if (p.packed && t.rank == r.rank) return raise(errors::PackedRank{.tensor = r.name, .got = t.rank});
    return raise(errors::RankMismatch{
        .tensor = r.name, .got = t.rank, .expected = fmt::format("{} ({})", want.rank, axes_text(r, p.packed))});
  }
  for (i32 n = 0; n < t.rank; ++n) {
    if (t.shape[n] == want.shape[n]) continue;
    const Axis axis = axis_at(r, p.packed, n);
    const char* name = axis_name(axis, p.packed);
    return raise(errors::ShapeMismatch{
        .tensor = r.name,
        .axis = fmt::format("{} (axis {} of shape {})", name, n, shape_text(t)),
        .got = t.shape[n],
        .expected = want.shape[n],
        .because = fmt::format("{} of {} is {}", name, defined_by(axis), want.shape[n])});
  }
  if (t.dtype != want.dtype) {
    if (r.statistic) return raise(errors::LseDtype{.tensor = r.name, .got = dtype_name(t.dtype)});
    return raise(errors::DtypeMismatch{
        .tensor = r.name, .got = dtype_name(t.dtype), .other = "q", .expected = dtype_name(want.dtype)});
  }
  if (!same_device(t.device, p.device))
    return raise(errors::DeviceMismatch{
        .tensor = r.name, .got = device_text(t.device), .other = "q", .expected = device_text(p.device)});
  return {};
}

Expected<void> check_call_tensor(const Problem& p, TensorId id, const Tensor& t) {
  const Rule& r = rule(id);
  const Tensor want = wanted(p, r);
  bool same_shape = t.rank == want.rank;
  for (i32 n = 0; n < t.rank && same_shape; ++n) same_shape = t.shape[n] == want.shape[n];
  if (!same_shape)
    return raise(errors::PlanShape{.tensor = r.name,
                                   .got = shape_text(t),
                                   .planned = fmt::format("{} = ({})", shape_text(want), axes_text(r, p.packed))});
  if (t.dtype != want.dtype)
    return raise(errors::PlanDtype{.tensor = r.name, .got = dtype_name(t.dtype), .planned = dtype_name(want.dtype)});
  if (!same_device(t.device, p.device))
    return raise(errors::PlanDevice{
        .tensor = r.name, .got = device_text(t.device), .planned = device_text(p.device)});
  return {};
}

Expected<void> check_written_layout(const Problem& p, TensorId id, const Tensor& t) {
  if (!has_elements(t)) return {};
  const Rule& r = rule(id);
  const auto axis_text = [&](i32 n) {
    return fmt::format("{} (axis {})", axis_name(axis_at(r, p.packed, n), p.packed), n);
  };
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
