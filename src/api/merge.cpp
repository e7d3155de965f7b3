// isoflash_merge and isoflash_merge_backward on the CPU: row by row, each element summed over the parts in their order, so
// that a row's bits depend on nothing but the row. The mathematics is core/merge.h.
#include "core/merge.h"

#include <cmath>

#include "api/boundary.h"
#include "validate/merge.h"
#include "validate/tensor.h"

namespace iso {
namespace {

struct HostMath {
  using Real = double;
  static double exp(double x) { return std::exp(x); }
  static double log(double x) { return std::log(x); }
};

// Elements of a row that are held at a time; a row of head_dim_v up to this is one piece.
constexpr i64 kPiece = 256;

// A place in the tensors: row and head of a batch entry.
struct Place {
  i64 batch, row, head;
};

// Calls visit(place) for every row and head of tensors shaped like `out`.
template <class Visit>
void for_each_place(const Tensor& out, const Visit& visit) {
  const i64 batch = out.rank == 4 ? out.shape[0] : 1;
  for (i64 b = 0; b < batch; ++b)
    for (i64 row = 0; row < out.shape[out.rank - 3]; ++row)
      for (i64 head = 0; head < out.shape[out.rank - 2]; ++head) visit(Place{b, row, head});
}

// Offset of element [place, 0] of out and its like.
i64 row_offset(const Tensor& t, const Place& at) {
  const i64* strides = t.strides + t.rank - 3;
  return (t.rank == 4 ? at.batch * t.strides[0] : 0) + at.row * strides[0] + at.head * strides[1];
}

float& lse_at(const Tensor& t, const Place& at) {
  const i64* strides = t.strides + t.rank - 2;
  const i64 offset = (t.rank == 3 ? at.batch * t.strides[0] : 0) + at.head * strides[0] + at.row * strides[1];
  return static_cast<float*>(t.data)[offset];
}

template <class T>
void load_elements(const void* data, i64 offset, i64 stride, i64 count, float* to) {
  const T* from = static_cast<const T*>(data) + offset;
  if (stride == 1) {
    for (i64 d = 0; d < count; ++d) to[d] = to_float(from[d]);
  } else {
    for (i64 d = 0; d < count; ++d) to[d] = to_float(from[d * stride]);
  }
}

template <class T>
void store_elements(void* data, i64 offset, i64 stride, i64 count, const float* from) {
  T* to = static_cast<T*>(data) + offset;
  for (i64 d = 0; d < count; ++d) to[d * stride] = from_float<T>(from[d]);
}

// Elements [begin, begin + count) of the row at `at`.
void load(const Tensor& t, const Place& at, i64 begin, i64 count, float* to) {
  const i64 stride = t.strides[t.rank - 1], offset = row_offset(t, at) + begin * stride;
  switch (t.dtype) {
    case DType::bf16: return load_elements<bf16>(t.data, offset, stride, count, to);
    case DType::f16: return load_elements<f16>(t.data, offset, stride, count, to);
    default: return load_elements<float>(t.data, offset, stride, count, to);
  }
}

void store(const Tensor& t, const Place& at, i64 begin, i64 count, const float* from) {
  const i64 stride = t.strides[t.rank - 1], offset = row_offset(t, at) + begin * stride;
  switch (t.dtype) {
    case DType::bf16: return store_elements<bf16>(t.data, offset, stride, count, from);
    case DType::f16: return store_elements<f16>(t.data, offset, stride, count, from);
    default: return store_elements<float>(t.data, offset, stride, count, from);
  }
}

// Calls piece(begin, count) for [0, dim) in pieces.
template <class Piece>
void for_each_piece(i64 dim, const Piece& piece) {
  for (i64 begin = 0; begin < dim; begin += kPiece) piece(begin, min_of(kPiece, dim - begin));
}

// Every element is read before it is written, and the parts' lse before the row's, so that out and lse may be those of a
// part.
void merge_row(const MergeTensors& t, const Place& at) {
  const i32 num_parts = static_cast<i32>(t.outs.size());
  const auto part_lse = [&](i32 n) { return lse_at(t.lses[n], at); };
  const MergedRow<HostMath> row(num_parts, part_lse);
  float sum[kPiece], part[kPiece];
  for_each_piece(t.out.shape[t.out.rank - 1], [&](i64 begin, i64 count) {
    for (i64 d = 0; d < count; ++d) sum[d] = 0;
    for (i32 n = 0; n < num_parts; ++n) {
      if (part_lse(n) == kLseOfNoKey) continue;
      const float weight = static_cast<float>(row.weight(part_lse(n)));
      load(t.outs[n], at, begin, count, part);
      for (i64 d = 0; d < count; ++d) sum[d] += weight * part[d];
    }
    store(t.out, at, begin, count, sum);
  });
  if (given(t.lse)) lse_at(t.lse, at) = row.lse();
}

void merge_backward_row(const MergeBackwardTensors& t, const Place& at) {
  const float lse = lse_at(t.lse, at);
  const double dlse = given(t.dlse) ? lse_at(t.dlse, at) : 0;
  float dout[kPiece], out[kPiece], part[kPiece];
  for (std::size_t n = 0; n < t.outs.size(); ++n) {
    const float part_lse = lse_at(t.lses[n], at);
    const double weight = merged_weight<HostMath>(part_lse, lse);
    const bool saw_keys = part_lse != kLseOfNoKey;
    double dot = 0;  // dout . (outs[n] - out)
    for_each_piece(t.out.shape[t.out.rank - 1], [&](i64 begin, i64 count) {
      load(t.dout, at, begin, count, dout);
      load(t.out, at, begin, count, out);
      load(t.outs[n], at, begin, count, part);
      for (i64 d = 0; d < count; ++d) dot += static_cast<double>(dout[d]) * (static_cast<double>(part[d]) - out[d]);
      for (i64 d = 0; d < count; ++d) part[d] = saw_keys ? static_cast<float>(weight * dout[d]) : 0.0f;
      store(t.douts[n], at, begin, count, part);
    });
    lse_at(t.dlses[n], at) = saw_keys ? static_cast<float>(weight * (dot + dlse)) : 0.0f;
  }
}

}  // namespace
}  // namespace iso

using namespace iso;

extern "C" {

void isoflash_merge_args_init(isoflash_merge_args* args) {
  if (args == nullptr) return;
  *args = {};
  args->struct_size = sizeof *args;
}

void isoflash_merge_backward_args_init(isoflash_merge_backward_args* args) {
  if (args == nullptr) return;
  *args = {};
  args->struct_size = sizeof *args;
}

isoflash_status isoflash_merge(const isoflash_merge_args* args, isoflash_error* error) {
  static const char kFunction[] = "isoflash_merge";
  return guarded(error, kFunction, [&]() -> Expected<void> {
    if (args == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "args"});
    const auto a = read_struct(args, "isoflash_merge_args", sizeof(isoflash_merge_args), isoflash_merge_args_init);
    if (!a) return tl::unexpected(a.error());
    const auto tensors = validate_merge(*a);
    if (!tensors) return tl::unexpected(tensors.error());
    if (!has_elements(tensors->out) && !has_elements(tensors->lse)) return {};
    for_each_place(tensors->out, [&](const Place& at) { merge_row(*tensors, at); });
    return {};
  });
}

isoflash_status isoflash_merge_backward(const isoflash_merge_backward_args* args, isoflash_error* error) {
  static const char kFunction[] = "isoflash_merge_backward";
  return guarded(error, kFunction, [&]() -> Expected<void> {
    if (args == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "args"});
    const auto a = read_struct(args, "isoflash_merge_backward_args", sizeof(isoflash_merge_backward_args),
                               isoflash_merge_backward_args_init);
    if (!a) return tl::unexpected(a.error());
    const auto tensors = validate_merge_backward(*a);
    if (!tensors) return tl::unexpected(tensors.error());
    if (!has_elements(tensors->dlses[0])) return {};
    for_each_place(tensors->out, [&](const Place& at) { merge_backward_row(*tensors, at); });
    return {};
  });
}

}  // extern "C"
