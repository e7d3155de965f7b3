// Buffers that show every stray write: a call's tensors lie in Memory, whose bytes are a NaN pattern wherever no tensor
// has an element. Outputs start as NaN too, and stand between guard bands.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/problem.h"

namespace iso::conformance {

// All bits set: NaN in float, bf16 and fp16.
inline constexpr unsigned char kPoison = 0xff;
inline constexpr i64 kGuardElements = 64;

// Calls visit(offset) for each element of the tensor, offsets counted from t.data, last axis fastest.
template <class Visit>
void for_each_element(const Tensor& t, Visit&& visit) {
  for (i32 axis = 0; axis < t.rank; ++axis)
    if (t.shape[axis] == 0) return;
  i64 index[4] = {0, 0, 0, 0};
  for (;;) {
    i64 offset = 0;
    for (i32 axis = 0; axis < t.rank; ++axis) offset += index[axis] * t.strides[axis];
    visit(offset);
    i32 axis = t.rank - 1;
    while (axis >= 0 && ++index[axis] == t.shape[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

class Memory {
 public:
  // `elements` of the type, 64-byte aligned. Without guards the allocation ends with the last element, so that a
  // memory checker sees any read beyond it.
  Memory(DType dtype, i64 elements, bool guards) : dtype_(dtype), guard_(guards ? kGuardElements : 0) {
    size_ = static_cast<std::size_t>((elements + 2 * guard_) * dtype_size(dtype));
    void* data = nullptr;
    if (posix_memalign(&data, 64, size_ == 0 ? 1 : size_) != 0) throw std::bad_alloc();
    data_.reset(static_cast<unsigned char*>(data));
    std::memset(data_.get(), kPoison, size_);
    owned_.assign(size_, 0);
  }

  // The tensor whose element [0, 0, ...] is element `offset` of this memory. Its elements are its own: written freely.
  Tensor place(std::vector<i64> shape, std::vector<i64> strides, i64 offset) {
    Tensor t;
    t.dtype = dtype_;
    t.rank = static_cast<i32>(shape.size());
    std::copy(shape.begin(), shape.end(), t.shape);
    std::copy(strides.begin(), strides.end(), t.strides);
    const i64 size = dtype_size(dtype_), first = (guard_ + offset) * size;
    t.data = data_.get() + first;
    for_each_element(t,
                     [&](i64 at) { std::memset(owned_.data() + first + at * size, 0xff, static_cast<std::size_t>(size)); });
    return t;
  }

  // True if every byte that belongs to no tensor still is poison.
  bool untouched_between_tensors() const {
    unsigned char touched = 0;
    for (std::size_t n = 0; n < size_; ++n) touched |= static_cast<unsigned char>((data_.get()[n] ^ kPoison) & ~owned_[n]);
    return touched == 0;
  }

  std::vector<unsigned char> bytes() const { return {data_.get(), data_.get() + size_}; }

 private:
  struct Free {
    void operator()(unsigned char* data) const { std::free(data); }
  };
  DType dtype_;
  i64 guard_;
  std::size_t size_ = 0;
  std::unique_ptr<unsigned char, Free> data_;
  std::vector<unsigned char> owned_;  // for each byte: 0xff if it belongs to a tensor, else 0
};

}  // namespace iso::conformance
