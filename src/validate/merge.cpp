#include "validate/merge.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "validate/overlap.h"
#include "validate/propagate.h"
#include "validate/tensor.h"

namespace iso {
namespace {

enum class Kind { out, lse };  // shaped like out, or like lse
enum class Use { read, written };
enum class Need { required, optional };

// An argument: one tensor, or one of each part. Although it is written, it may be the same tensor as one of `in_place_of`.
struct Argument {
  std::string_view name;
  const char* role;
  Kind kind;
  Use use;
  Need need;
  const isoflash_tensor* from;
  Tensor* to;
  bool of_parts;  // num_parts of them
  std::string_view in_place_of = "nothing";
};

// One tensor of an argument.
struct Item {
  const Argument* argument;
  i32 index;

  const isoflash_tensor& from() const { return argument->from[index]; }
  Tensor& to() const { return argument->to[index]; }
  bool written() const { return argument->use == Use::written; }
  std::string name() const {
    return argument->of_parts ? fmt::format("{}[{}]", argument->name, index) : std::string(argument->name);
  }
};

// Calls check(item), an Expected<void>, for the tensors of all arguments.
template <class Check>
Expected<void> for_each_item(std::span<const Argument> arguments, i32 num_parts, const Check& check) {
  for (const Argument& argument : arguments)
    for (i32 n = 0; n < (argument.of_parts ? num_parts : 1); ++n) ISO_RETURN_IF_ERROR(check(Item{&argument, n}));
  return {};
}

bool same_shape(const Tensor& t, const Tensor& wanted) {
  bool same = t.rank == wanted.rank;
  for (i32 axis = 0; axis < t.rank && same; ++axis) same = t.shape[axis] == wanted.shape[axis];
  return same;
}

// Every element of `a` is that of `b`.
bool same_tensor(const Tensor& a, const Tensor& b) {
  bool same = a.data == b.data && a.dtype == b.dtype && same_shape(a, b);
  for (i32 axis = 0; axis < a.rank && same; ++axis) same = a.shape[axis] <= 1 || a.strides[axis] == b.strides[axis];
  return same;
}

// out (batch, rows, heads, dim) has lse (batch, heads, rows); without the batch where packed.
Tensor lse_shape(const Tensor& out) {
  Tensor t;
  t.rank = out.rank - 1;
  for (i32 axis = 0; axis < t.rank; ++axis) t.shape[axis] = out.shape[axis];
  std::swap(t.shape[t.rank - 1], t.shape[t.rank - 2]);
  return t;
}

Expected<void> check_written(const Item& item) {
  const Tensor& t = item.to();
  if (!has_elements(t)) return {};
  std::string contiguous = "none";
  for (i32 axis = 0; axis < t.rank; ++axis)
    if (t.strides[axis] == 1 && t.shape[axis] > 1) contiguous = fmt::format("axis {}", axis);
  for (i32 axis = 0; axis < t.rank; ++axis)
    if (t.shape[axis] > 1 && t.strides[axis] <= 0)
      return raise(errors::OutputLayout{.tensor = item.name(),
                                        .role = item.argument->role,
                                        .shape = shape_text(t),
                                        .strides = strides_text(t),
                                        .dtype = dtype_name(t.dtype),
                                        .axis = fmt::format("axis {}", axis),
                                        .stride = t.strides[axis],
                                        .contiguous_axis = contiguous});
  if (overlaps_itself(t))
    return raise(errors::OutputSelfOverlap{.tensor = item.name(), .shape = shape_text(t), .strides = strides_text(t)});
  return {};
}

// Reads the item; the first of all, outs[0], defines the shape `out`.
Expected<void> read_item(const Item& item, const char* call, Tensor& out) {
  const std::string name = item.name();
  const auto read = read_tensor(item.from(), name.c_str());
  if (!read) return tl::unexpected(read.error());
  const Tensor& t = item.to() = *read;
  if (!given(t)) {
    if (item.argument->need == Need::optional) return {};
    return raise(errors::MergeTensorMissing{.call = call, .tensor = name});
  }
  if (!given(out)) {
    if (t.rank != 3 && t.rank != 4) return raise(errors::MergeRank{.tensor = name, .got = shape_text(t)});
    out = t;
  }
  const bool is_lse = item.argument->kind == Kind::lse;
  const Tensor wanted = is_lse ? lse_shape(out) : out;
  if (!same_shape(t, wanted))
    return raise(errors::MergeShape{.tensor = name,
                                    .got = shape_text(t),
                                    .expected = shape_text(wanted),
                                    .axes = !is_lse            ? "outs[0]"
                                            : wanted.rank == 3 ? "(batch, num_heads, seqlen) of outs[0]"
                                                               : "(num_heads, total) of outs[0]"});
  const bool float_type = t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16;
  if (is_lse ? t.dtype != DType::f32 : !float_type)
    return raise(errors::MergeDtype{
        .tensor = name, .got = dtype_name(t.dtype), .accepted = is_lse ? "float32" : "float32, bfloat16 or float16"});
  if (t.device.type != DeviceType::cpu) return raise(errors::MergeDevice{.tensor = name, .got = device_text(t.device)});
  ISO_RETURN_IF_ERROR(check_memory(t, name.c_str()));
  return item.written() ? check_written(item) : Expected<void>{};
}

// What is written shares no memory with anything else, but what it is written in place of.
Expected<void> check_apart(std::span<const Argument> arguments, i32 num_parts, const Item& written) {
  return for_each_item(arguments, num_parts, [&](const Item& other) -> Expected<void> {
    const Tensor &a = written.to(), &b = other.to();
    if (&a == &b || !overlap(a, b)) return {};
    if (written.argument->in_place_of == other.argument->name && same_tensor(a, b)) return {};
    return raise(errors::MergeAlias{.output = written.name(), .other = other.name()});
  });
}

Expected<void> check_arguments(const char* call, i32 num_parts, std::span<const Argument> arguments) {
  Tensor out;
  ISO_RETURN_IF_ERROR(for_each_item(arguments, num_parts, [&](const Item& item) { return read_item(item, call, out); }));
  return for_each_item(arguments, num_parts, [&](const Item& item) {
    return item.written() ? check_apart(arguments, num_parts, item) : Expected<void>{};
  });
}

// num_parts, and the arrays that hold so many descriptors.
Expected<void> check_parts(const char* call, i32 num_parts, const isoflash_tensor* outs, const isoflash_tensor* lses) {
  if (num_parts < 1 || num_parts > kMaxMergeParts)
    return raise(errors::MergeNumParts{.call = call, .got = num_parts, .max = kMaxMergeParts});
  if (outs == nullptr) return raise(errors::MergeTensorMissing{.call = call, .tensor = "outs"});
  if (lses == nullptr) return raise(errors::MergeTensorMissing{.call = call, .tensor = "lses"});
  return {};
}

}  // namespace

Expected<MergeTensors> validate_merge(const isoflash_merge_args& args) {
  static const char kCall[] = "isoflash_merge";
  ISO_RETURN_IF_ERROR(check_parts(kCall, args.num_parts, args.outs, args.lses));
  MergeTensors t;
  t.outs.resize(static_cast<std::size_t>(args.num_parts));
  t.lses.resize(t.outs.size());
  const Argument arguments[] = {
      {"outs", "output of a part", Kind::out, Use::read, Need::required, args.outs, t.outs.data(), true},
      {"lses", "log-sum-exp of a part", Kind::lse, Use::read, Need::required, args.lses, t.lses.data(), true},
      {"out", "merged output", Kind::out, Use::written, Need::required, &args.out, &t.out, false, "outs"},
      {"lse", "merged log-sum-exp", Kind::lse, Use::written, Need::optional, &args.lse, &t.lse, false, "lses"}};
  ISO_RETURN_IF_ERROR(check_arguments(kCall, args.num_parts, arguments));
  return t;
}

Expected<MergeBackwardTensors> validate_merge_backward(const isoflash_merge_backward_args& args) {
  static const char kCall[] = "isoflash_merge_backward";
  ISO_RETURN_IF_ERROR(check_parts(kCall, args.num_parts, args.outs, args.lses));
  if (args.douts == nullptr) return raise(errors::MergeTensorMissing{.call = kCall, .tensor = "douts"});
  if (args.dlses == nullptr) return raise(errors::MergeTensorMissing{.call = kCall, .tensor = "dlses"});
  MergeBackwardTensors t;
  for (std::vector<Tensor>* parts : {&t.outs, &t.lses, &t.douts, &t.dlses})
    parts->resize(static_cast<std::size_t>(args.num_parts));
  const Argument arguments[] = {
      {"outs", "output of a part", Kind::out, Use::read, Need::required, args.outs, t.outs.data(), true},
      {"lses", "log-sum-exp of a part", Kind::lse, Use::read, Need::required, args.lses, t.lses.data(), true},
      {"out", "merged output", Kind::out, Use::read, Need::required, &args.out, &t.out, false},
      {"lse", "merged log-sum-exp", Kind::lse, Use::read, Need::required, &args.lse, &t.lse, false},
      {"dout", "gradient of out", Kind::out, Use::read, Need::required, &args.dout, &t.dout, false},
      {"dlse", "gradient of lse", Kind::lse, Use::read, Need::optional, &args.dlse, &t.dlse, false},
      {"douts", "gradient of a part's output", Kind::out, Use::written, Need::required, args.douts, t.douts.data(), true},
      {"dlses", "gradient of a part's log-sum-exp", Kind::lse, Use::written, Need::required, args.dlses, t.dlses.data(),
       true}};
  ISO_RETURN_IF_ERROR(check_arguments(kCall, args.num_parts, arguments));
  return t;
}

}  // namespace iso
