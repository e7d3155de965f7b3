// Tensors of rows on the host with every stride the kernels must take, their memory surrounded by guards.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "common_kernels/machine.h"
#include "kernels/params.h"

namespace iso::test {

enum class Strides {
  contiguous,
  padded,    // gaps between heads and rows, all rows at multiples of 16 bytes
  odd,       // rows at any element: no 16-byte accesses
  reversed,  // rows and heads run backwards (inputs only)
  expanded   // one element for all (inputs only)
};

// Elements that no tensor owns; tests look that they stay.
inline constexpr u8 kGuardByte = 0xa5;
inline constexpr i64 kGuardElements = 64;

template <class T>
class HostTensor {
 public:
  HostTensor(i64 batch, i64 rows, i64 heads, i64 dim, Strides strides) : shape_{batch, rows, heads, dim} {
    const i64 gap = strides == Strides::padded ? 16 : strides == Strides::odd ? 3 : 0;
    i64 head = dim + gap, row = heads * head + gap, entry = rows * row + gap, first = strides == Strides::odd ? 1 : 0;
    extent_ = batch * entry + first;
    if (strides == Strides::reversed) {
      first = (rows - 1) * row + (heads - 1) * head;
      row = -row, head = -head;
    }
    if (strides == Strides::expanded) entry = row = head = 0, extent_ = 1;
    t_ = {nullptr,
          entry,
          row,
          head,
          strides == Strides::expanded ? 0 : 1,
          strides == Strides::contiguous || strides == Strides::padded || strides == Strides::reversed};
    first_ = kGuardElements + first;
    memory_.resize(static_cast<std::size_t>(extent_ + 2 * kGuardElements));
    std::memset(memory_.data(), kGuardByte, memory_.size() * sizeof(T));
  }

  T& at(i64 b, i64 row, i64 head, i64 d) {
    return memory_[static_cast<std::size_t>(first_ + b * t_.stride_batch + row * t_.stride_row + head * t_.stride_head +
                                            d * t_.stride_dim)];
  }
  template <class Value>
  void fill(Value& value) {
    for (i64 b = 0; b < shape_[0]; ++b)
      for (i64 r = 0; r < shape_[1]; ++r)
        for (i64 h = 0; h < shape_[2]; ++h)
          for (i64 d = 0; d < shape_[3]; ++d) at(b, r, h, d) = from_float<T>(value());
  }

  std::size_t bytes() const { return memory_.size() * sizeof(T); }
  std::vector<T>& memory() { return memory_; }
  RowTensor upload(Machine& machine, const std::string& name) {
    RowTensor t = t_;
    device_ = machine.upload(memory_.data(), bytes(), name);
    t.data = static_cast<T*>(device_) + first_;
    return t;
  }
  std::vector<T> download(Machine& machine) const {
    std::vector<T> out(memory_.size());
    machine.download(out.data(), device_, bytes());
    return out;
  }

 private:
  i64 shape_[4];
  i64 extent_, first_;
  RowTensor t_;
  std::vector<T> memory_;
  void* device_ = nullptr;
};

// (batch, heads, rows) float32: lse and dlse.
class HostLse {
 public:
  HostLse(i64 batch, i64 heads, i64 rows)
      : heads_(heads), rows_(rows), memory_(static_cast<std::size_t>(batch * heads * rows + 2 * kGuardElements)) {
    std::memset(memory_.data(), kGuardByte, memory_.size() * sizeof(float));
  }
  float& at(i64 b, i64 head, i64 row) {
    return memory_[static_cast<std::size_t>(kGuardElements + (b * heads_ + head) * rows_ + row)];
  }
  std::vector<float>& memory() { return memory_; }
  LseTensor upload(Machine& machine, const std::string& name) {
    device_ = machine.upload(memory_.data(), memory_.size() * sizeof(float), name);
    return {static_cast<float*>(device_) + kGuardElements, heads_ * rows_, rows_, 1};
  }
  std::vector<float> download(Machine& machine) const {
    std::vector<float> out(memory_.size());
    machine.download(out.data(), device_, out.size() * sizeof(float));
    return out;
  }

 private:
  i64 heads_, rows_;
  std::vector<float> memory_;
  void* device_ = nullptr;
};

}  // namespace iso::test
