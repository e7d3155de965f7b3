#include "validate/broadcast.h"

#include <fmt/format.h>

namespace iso {

bool fits(const Tensor& t, std::span<const BroadcastAxis> axes) {
  if (t.rank != static_cast<i32>(axes.size())) return false;
  for (std::size_t n = 0; n < axes.size(); ++n) {
    const bool shared = axes[n].may_be_1 && t.shape[n] == 1;
    if (!shared && axes[n].extent != kAnyExtent && t.shape[n] != axes[n].extent) return false;
  }
  return true;
}

std::string axes_text(std::span<const BroadcastAxis> axes) {
  std::string text;
  for (const BroadcastAxis& axis : axes) {
    text += fmt::format("{}{}", text.empty() ? "(" : ", ", axis.name);
    if (axis.extent != kAnyExtent) text += fmt::format(" {}", axis.extent);
    if (axis.may_be_1 && axis.extent != 1) text += " or 1";
  }
  return text + ")";
}

void stride_over_shared_axes(Tensor& t) {
  for (i32 axis = 0; axis < t.rank; ++axis)
    if (t.shape[axis] == 1) t.strides[axis] = 0;
}

}  // namespace iso
