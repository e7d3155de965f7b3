#include "validate/overlap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "validate/tensor.h"

namespace iso {
namespace {

alignas(64) char memory[1 << 16];

Tensor tensor(i64 byte_offset, DType dtype, std::vector<i64> shape, std::vector<i64> strides) {
  Tensor t;
  t.data = memory + byte_offset;
  t.dtype = dtype;
  t.rank = static_cast<i32>(shape.size());
  for (std::size_t n = 0; n < shape.size(); ++n) {
    t.shape[n] = shape[n];
    t.strides[n] = strides[n];
  }
  return t;
}

// The byte offsets of all elements, one entry per index tuple.
std::vector<i64> elements(const Tensor& t) {
  std::vector<i64> at{static_cast<char*>(t.data) - memory};
  for (i32 axis = 0; axis < t.rank; ++axis) {
    std::vector<i64> next;
    for (const i64 base : at)
      for (i64 x = 0; x < t.shape[axis]; ++x) next.push_back(base + x * t.strides[axis] * dtype_size(t.dtype));
    at = std::move(next);
  }
  return at;
}

std::set<i64> bytes(const Tensor& t) {
  std::set<i64> all;
  for (const i64 at : elements(t))
    for (int n = 0; n < dtype_size(t.dtype); ++n) all.insert(at + n);
  return all;
}

// Evenly in [low, high]; inRange alone favours small numbers in early cases, and an extent of 0 tests nothing.
i64 between(i64 low, i64 high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<i64>(low, high + 1)); }

Tensor random_tensor() {
  std::vector<i64> shape(static_cast<std::size_t>(between(1, 3))), strides(shape.size());
  for (i64& extent : shape) extent = between(0, 12) == 0 ? 0 : between(1, 5);
  for (i64& stride : strides) stride = between(-12, 24);
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  return tensor(1024 + 2 * between(0, 60), dtype, shape, strides);
}

RC_GTEST_PROP(Overlap, EqualsComparingAllBytes, ()) {
  const Tensor a = random_tensor(), b = random_tensor();
  const std::set<i64> x = bytes(a), y = bytes(b);
  bool shared = false;
  for (const i64 at : x) shared |= y.contains(at);
  RC_TAG(shared);
  RC_ASSERT(overlap(a, b) == shared);
  RC_ASSERT(overlap(b, a) == shared);
}

RC_GTEST_PROP(Overlap, ItselfEqualsComparingAllElements, ()) {
  const Tensor t = random_tensor();
  const std::vector<i64> at = elements(t);
  const bool twice = std::set<i64>(at.begin(), at.end()).size() < at.size();
  RC_TAG(twice);
  RC_ASSERT(overlaps_itself(t) == twice);
}

TEST(Overlap, SlicesOfOneFusedBufferAreApart) {
  // u, v, q, k of [rows, 4 * 64] 16-bit elements, each seen as (rows, 4 heads, 16).
  std::vector<Tensor> slices;
  for (i64 n = 0; n < 4; ++n) slices.push_back(tensor(n * 128, DType::bf16, {33, 4, 16}, {256, 16, 1}));
  for (std::size_t a = 0; a < slices.size(); ++a)
    for (std::size_t b = 0; b < slices.size(); ++b) EXPECT_EQ(overlap(slices[a], slices[b]), a == b) << a << " " << b;
  // Interleaved per head: (rows, heads, 3, 16).
  EXPECT_FALSE(overlap(tensor(0, DType::f32, {9, 4, 16}, {192, 48, 1}), tensor(64, DType::f32, {9, 4, 16}, {192, 48, 1})));
  EXPECT_TRUE(overlap(tensor(0, DType::f32, {9, 4, 17}, {192, 48, 1}), tensor(64, DType::f32, {9, 4, 16}, {192, 48, 1})));
}

TEST(Overlap, RealSizesAreAnsweredAtOnce) {
  // Slices of a fused (batch, seqlen, 24 heads, 128) buffer and their transposed twins: nothing is read, so the addresses
  // may be fictitious.
  const i64 row = 24 * 128;
  Tensor q = tensor(0, DType::bf16, {512, 4096, 20, 128}, {4096 * row, row, 128, 1});
  Tensor k = tensor(20 * 128 * 2, DType::bf16, {512, 4096, 4, 128}, {4096 * row, row, 128, 1});
  EXPECT_FALSE(overlap(q, k));
  EXPECT_FALSE(overlaps_itself(q));
  k.data = static_cast<char*>(k.data) - 2;
  EXPECT_TRUE(overlap(q, k));
}

TEST(Overlap, ExpandedAndShiftedTensorsOverlapThemselves) {
  EXPECT_TRUE(overlaps_itself(tensor(0, DType::f32, {2, 3}, {0, 1})));
  EXPECT_TRUE(overlaps_itself(tensor(0, DType::f32, {2, 3}, {2, 1})));
  EXPECT_FALSE(overlaps_itself(tensor(0, DType::f32, {1, 3}, {0, 1})));
  EXPECT_FALSE(overlaps_itself(tensor(0, DType::f32, {2, 0}, {0, 1})));
  EXPECT_FALSE(overlaps_itself(tensor(0, DType::f32, {3, 2}, {1, 3})));
}

}  // namespace
}  // namespace iso
