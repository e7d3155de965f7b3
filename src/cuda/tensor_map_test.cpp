#include "cuda/tensor_map.h"

#include <gmock/gmock.h>

#include "fake_driver/fixture.h"

namespace iso::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

alignas(16) const char memory[64] = {};

TensorMapSpec good() {
  TensorMapSpec spec;
  spec.tensor = "q";
  spec.dtype = DType::bf16;
  spec.rank = 3;
  spec.data = memory;
  const i64 shape[] = {128, 20, 1152}, strides[] = {1, 128, 2560};
  const i32 box[] = {64, 5, 16};
  std::copy_n(shape, 3, spec.shape);
  std::copy_n(strides, 3, spec.strides);
  std::copy_n(box, 3, spec.box);
  spec.swizzle_bytes = 128;
  return spec;
}

class CudaTensorMap : public FakeDriverTest {};

TEST_F(CudaTensorMap, GivesTheDriverBytesAndItsNumbers) {
  const Driver driver = open();
  ASSERT_TRUE(encode_tensor_map(driver, good()));
  const FakeTensorMap& map = fake().tensor_maps.at(0);
  EXPECT_EQ(map.type, 9);
  EXPECT_EQ(map.address, memory);
  EXPECT_THAT(map.shape, ElementsAre(128u, 20u, 1152u));
  EXPECT_THAT(map.stride_bytes, ElementsAre(256u, 5120u));
  EXPECT_THAT(map.box, ElementsAre(64u, 5u, 16u));
  EXPECT_THAT(map.element_strides, ElementsAre(1u, 1u, 1u));
  EXPECT_EQ(map.interleave, 0);
  EXPECT_EQ(map.swizzle, 3);
  EXPECT_EQ(map.fill, 0);
}

TEST_F(CudaTensorMap, TypesAndSwizzles) {
  const Driver driver = open();
  const std::pair<DType, i32> types[] = {{DType::bf16, 9}, {DType::f16, 6}, {DType::f32, 7}};
  const std::pair<i32, i32> swizzles[] = {{0, 0}, {32, 1}, {64, 2}, {128, 3}};
  for (const auto& [dtype, type] : types)
    for (const auto& [bytes, swizzle] : swizzles) {
      TensorMapSpec spec = good();
      spec.dtype = dtype;
      spec.swizzle_bytes = bytes;
      spec.box[0] = 8;
      ASSERT_TRUE(encode_tensor_map(driver, spec));
      EXPECT_EQ(fake().tensor_maps.back().type, type);
      EXPECT_EQ(fake().tensor_maps.back().swizzle, swizzle);
    }
}

TEST_F(CudaTensorMap, Refused) {
  const Driver driver = open();
  const std::pair<void (*)(TensorMapSpec&), const char*> cases[] = {
      {[](TensorMapSpec& s) { s.dtype = DType::i32; }, "its dtype is int32"},
      {[](TensorMapSpec& s) { s.rank = 0; }, "it has 0 axes"},
      {[](TensorMapSpec& s) { s.rank = 6; }, "it has 6 axes"},
      {[](TensorMapSpec& s) { s.data = memory + 2; }, "expected a multiple of 16"},
      {[](TensorMapSpec& s) { s.strides[0] = 2; }, "the innermost axis has stride 2"},
      {[](TensorMapSpec& s) { s.swizzle_bytes = 16; }, "the swizzle spans 16 bytes"},
      {[](TensorMapSpec& s) { s.shape[2] = 0; }, "axis 2 from the innermost has extent 0"},
      {[](TensorMapSpec& s) { s.shape[1] = (i64{1} << 32) + 1; }, "axis 1 from the innermost has extent 4294967297"},
      {[](TensorMapSpec& s) { s.box[1] = 0; }, "the box has extent 0 on axis 1"},
      {[](TensorMapSpec& s) { s.box[2] = 257; }, "the box has extent 257 on axis 2"},
      {[](TensorMapSpec& s) { s.strides[1] = 132; }, "axis 1 from the innermost has stride 132 elements of 2 bytes"},
      {[](TensorMapSpec& s) { s.strides[2] = -2560; }, "stride -2560"},
      {[](TensorMapSpec& s) { s.strides[2] = i64{1} << 39; }, "stride 549755813888"},
      {[](TensorMapSpec& s) { s.box[0] = 4; }, "the box is 8 bytes wide"},
      {[](TensorMapSpec& s) { s.box[0] = 72; }, "expected at most the swizzle's 128"}};
  for (const auto& [spoil, text] : cases) {
    TensorMapSpec spec = good();
    spoil(spec);
    const Expected<TensorMap> map = encode_tensor_map(driver, spec);
    ASSERT_FALSE(map) << text;
    EXPECT_EQ(map.error().name(), "TENSOR_MAP_REFUSED");
    EXPECT_THAT(map.error().message(), HasSubstr(text));
    EXPECT_THAT(map.error().message(), HasSubstr("q does not suit the copy engine"));
  }
  EXPECT_TRUE(fake().tensor_maps.empty());
  fail("cuTensorMapEncodeTiled");
  const Expected<TensorMap> map = encode_tensor_map(driver, good());
  ASSERT_FALSE(map);
  EXPECT_THAT(map.error().message(), HasSubstr("the driver says CUDA_ERROR_INVALID_VALUE"));
}

}  // namespace
}  // namespace iso::cuda
