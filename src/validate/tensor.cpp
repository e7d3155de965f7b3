#include "validate/tensor.h"

#include <fmt/format.h>

#include "validate/propagate.h"

namespace iso {
namespace {

// Tensors span less than this many bytes, so that sums of two spans stay inside int64.
constexpr i64 kMaxSpan = i64{1} << 60;

std::string numbers_text(const i64* values, i32 count) {
  std::string text = "(";
  for (i32 n = 0; n < count; ++n) text += fmt::format("{}{}", n == 0 ? "" : ", ", values[n]);
  return text + ")";
}

// True if the extents or the reach of the strides, in bytes, do not fit.
bool spans_too_much(const Tensor& t) {
  const i64 size = dtype_size(t.dtype);
  i64 elements = 1, span = size;
  for (i32 axis = 0; axis < t.rank; ++axis) {
    if (__builtin_mul_overflow(elements, t.shape[axis], &elements)) return true;
    i64 stride = t.strides[axis], reach = 0;
    if (t.shape[axis] <= 1) continue;
    if (stride < 0 && __builtin_sub_overflow(i64{0}, stride, &stride)) return true;
    if (__builtin_mul_overflow(stride, size, &stride) || __builtin_mul_overflow(stride, t.shape[axis] - 1, &reach) ||
        __builtin_add_overflow(span, reach, &span) || span > kMaxSpan)
      return true;
  }
  return elements > kMaxSpan / size;
}

}  // namespace

bool has_elements(const Tensor& t) {
  for (i32 axis = 0; axis < t.rank; ++axis)
    if (t.shape[axis] == 0) return false;
  return t.rank > 0;
}

AddressRange address_range(const Tensor& t) {
  if (!has_elements(t)) return {};
  const i64 size = dtype_size(t.dtype);
  i64 low = 0, high = size;
  for (i32 axis = 0; axis < t.rank; ++axis) {
    const i64 reach = t.shape[axis] <= 1 ? 0 : (t.shape[axis] - 1) * t.strides[axis] * size;
    (reach < 0 ? low : high) += reach;
  }
  const auto data = reinterpret_cast<std::uintptr_t>(t.data);
  return {data + static_cast<std::uintptr_t>(low), data + static_cast<std::uintptr_t>(high)};
}

std::string shape_text(const Tensor& t) { return numbers_text(t.shape, t.rank); }
std::string strides_text(const Tensor& t) { return numbers_text(t.strides, t.rank); }
std::string device_text(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

Expected<Tensor> read_tensor(const isoflash_tensor& descriptor, const char* name) {
  Tensor t;
  t.rank = descriptor.rank;
  if (t.rank == 0) return t;
  if (t.rank < 0 || t.rank > 4) return raise(errors::RankMismatch{.tensor = name, .got = t.rank, .expected = "1 to 4"});
  if (descriptor.dtype < 0 || descriptor.dtype >= kNumDTypes)
    return raise(errors::EnumUnknown{
        .field = fmt::format("{}.dtype", name), .got = descriptor.dtype, .accepted = "a value of isoflash_dtype (0 to 5)"});
  if (descriptor.device_type != ISOFLASH_CPU && descriptor.device_type != ISOFLASH_CUDA)
    return raise(errors::DeviceUnknown{
        .tensor = name, .got = descriptor.device_type, .accepted = "ISOFLASH_CPU (1), ISOFLASH_CUDA (2)"});
  t.data = descriptor.data;
  t.dtype = static_cast<DType>(descriptor.dtype);
  t.device = {static_cast<DeviceType>(descriptor.device_type), descriptor.device_index};
  for (i32 axis = 0; axis < t.rank; ++axis) {
    t.shape[axis] = descriptor.shape[axis];
    t.strides[axis] = descriptor.strides[axis];
    if (t.shape[axis] < 0)
      return raise(errors::NegativeExtent{.tensor = name, .axis = fmt::format("axis {}", axis), .got = t.shape[axis]});
  }
  if (spans_too_much(t))
    return raise(errors::OffsetOverflow{.tensor = name, .shape = shape_text(t), .strides = strides_text(t)});
  return t;
}

Expected<void> check_memory(const Tensor& t, const char* name) {
  if (!has_elements(t)) return {};
  if (t.data == nullptr) return raise(errors::NullData{.tensor = name, .shape = shape_text(t)});
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  const int element_size = dtype_size(t.dtype);
  if (address % static_cast<std::uintptr_t>(element_size) != 0)
    return raise(
        errors::MisalignedPointer{.tensor = name, .address = fmt::format("{:#x}", address), .element_size = element_size});
  return {};
}

Expected<Tensor> read_index_tensor(const isoflash_tensor& descriptor, const char* name) {
  auto t = read_tensor(descriptor, name);
  if (!t) return t;
  if (t->dtype != DType::i32) return raise(errors::IndexDtype{.tensor = name, .got = dtype_name(t->dtype)});
  if (t->device.type != DeviceType::cpu) return raise(errors::IndexDevice{.tensor = name, .got = device_text(t->device)});
  ISO_RETURN_IF_ERROR(check_memory(*t, name));
  return t;
}

}  // namespace iso
