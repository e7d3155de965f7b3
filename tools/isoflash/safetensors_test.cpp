#include "safetensors.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "scratch_file.h"

namespace iso::tool {
namespace {

using testing::HasSubstr;

// A file image: the header with its length in front, and `data_bytes` zeros.
std::string image(const std::string& header, std::size_t data_bytes) {
  std::string file(8, '\0');
  for (int n = 0; n < 8; ++n) file[n] = static_cast<char>(header.size() >> (8 * n));
  return file + header + std::string(data_bytes, '\0');
}

Expected<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors("t.safetensors", {reinterpret_cast<const std::byte*>(file.data()), file.size()}, file.size());
}

void expect_error(const std::string& file, int id, const std::string& words) {
  const auto header = parse(file);
  ASSERT_FALSE(header.has_value()) << "accepted, but should say: " << words;
  EXPECT_EQ(header.error().id(), id) << header.error().message();
  EXPECT_THAT(header.error().message(), HasSubstr("t.safetensors"));
  EXPECT_THAT(header.error().message(), HasSubstr(words));
}

TEST(ErrorsRaised, FileOpen) {
  const auto missing = SafetensorsFile::open("/nonexistent/batch.safetensors");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().id(), errors::FileOpen::kId);
  EXPECT_THAT(missing.error().message(), HasSubstr("/nonexistent/batch.safetensors"));
  const auto folder = SafetensorsFile::open("/");
  ASSERT_FALSE(folder.has_value());
  EXPECT_THAT(folder.error().message(), HasSubstr("not a regular file"));
}

TEST(ErrorsRaised, FileWrite) {
  const auto done = write_safetensors("/nonexistent/out.safetensors", {}, {});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().id(), errors::FileWrite::kId);
}

TEST(ErrorsRaised, SafetensorsHeader) {
  constexpr int kId = errors::SafetensorsHeader::kId;
  expect_error("", kId, "0 bytes");
  expect_error(std::string(7, 'x'), kId, "7 bytes");
  expect_error(std::string(64, '\xff'), kId, "more than the limit");
  expect_error(image("{}", 0).substr(0, 9), kId, "ends after 9 bytes");
  expect_error(image("{", 0), kId, "not valid JSON");
  expect_error(image("[]", 0), kId, "instead of an object");
  expect_error(image("3", 0), kId, "instead of an object");
  expect_error(image(R"({"a": 1})", 0), kId, "out of place at 'a'");
  expect_error(image(R"({"a": {"dtype": "F32", "shape": [1]}})", 4), kId, "no data_offsets");
  expect_error(image(R"({"a": {"shape": [1], "data_offsets": [0, 4]}})", 4), kId, "no dtype");
  expect_error(image(R"({"a": {"dtype": "F32", "data_offsets": [0, 4]}})", 4), kId, "no shape");
  expect_error(image(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2, 4]}})", 4), kId, "3 data_offsets");
  expect_error(image(R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4), kId, "-1");
  expect_error(image(R"({"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}})", 4), kId, "1.5");
  expect_error(image(R"({"a": {"dtype": "F32", "shape": [18446744073709551615], "data_offsets": [0, 4]}})", 4), kId,
               "2^63");
  expect_error(image(R"({"a": {"dtype": "F32", "shape": [[1]], "data_offsets": [0, 4]}})", 4), kId, "a list");
  expect_error(image(R"({"a": {"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4), kId, "twice");
  expect_error(image(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "more": 1}})", 4), kId,
               "unknown entry");
  expect_error(image(R"({"__metadata__": {"a": 1}})", 0), kId, "out of place");
  expect_error(image(R"({"__metadata__": {"a": "1", "a": "2"}})", 0), kId, "twice");
  const std::string tensor = R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})";
  expect_error(image("{\"a\": " + tensor + ", \"a\": " + tensor + "}", 4), kId, "'a' occurs twice");
  expect_error(image(std::string(100000, '['), 0), kId, "instead of an object");
}

TEST(ErrorsRaised, SafetensorsTensor) {
  constexpr int kId = errors::SafetensorsTensor::kId;
  const auto file = [](const std::string& shape, const std::string& offsets) {
    return image("{\"a\": {\"dtype\": \"F32\", \"shape\": " + shape + ", \"data_offsets\": " + offsets + "}}", 16);
  };
  expect_error(file("[4]", "[16, 0]"), kId, "ends before it begins");
  expect_error(file("[4]", "[4, 20]"), kId, "past the end of the file");
  expect_error(file("[3]", "[0, 16]"), kId, "3 elements of 4 bytes");
  expect_error(file("[4611686018427387904, 4]", "[0, 16]"), kId, "2^63 elements");
  expect_error(file("[4611686018427387904]", "[0, 0]"), kId, "4611686018427387904 elements");
  expect_error(image(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                         "b": {"dtype": "I32", "shape": [2], "data_offsets": [4, 12]}})",
                     16),
               kId, "shares bytes with tensor 'a'");
}

TEST(Safetensors, TakesFilesOfOtherWriters) {
  // Keys in any order, spaces at the end, holes, a dtype of the future, empty tensors, scalars, unaligned data.
  const auto header =
      parse(image(R"({"z": {"data_offsets": [1, 5], "shape": [], "dtype": "F32"}, "__metadata__": {"k": "v"},
      "empty": {"shape": [0, 4611686018427387904, 9], "dtype": "BF16", "data_offsets": [9, 9]},
      "new": {"shape": [3], "dtype": "F4_X", "data_offsets": [7, 9]}}    )",
                  11));
  ASSERT_TRUE(header.has_value()) << header.error().message();
  ASSERT_NE(header->find("z"), nullptr);
  EXPECT_EQ(header->find("z")->elements(), 1);
  EXPECT_EQ(header->find("empty")->elements(), 0);
  EXPECT_FALSE(header->find("new")->dtype.has_value());
  EXPECT_EQ(header->metadata.at("k"), "v");
  EXPECT_EQ(header->find("no"), nullptr);
}

TEST(Safetensors, ReadsUnalignedDataIntoAlignedMemory) {
  const float value = 1.5f;
  std::string file = image(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}} )", 5);
  std::memcpy(file.data() + file.size() - 4, &value, 4);
  const ScratchFile scratch("unaligned.safetensors", file);
  const auto opened = SafetensorsFile::open(scratch.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const auto data = opened->read(*opened->header().find("a"));
  ASSERT_TRUE(data.has_value());
  EXPECT_EQ(data->as<float>()[0], value);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data->data()) % 64, 0u);
}

RC_GTEST_PROP(Safetensors, GivesBackWhatWasWritten, ()) {
  const auto dtypes = *rc::gen::container<std::vector<DType>>(
      rc::gen::element(DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64));
  std::vector<TensorData> tensors;
  for (const DType dtype : dtypes) {
    const auto shape = *rc::gen::resize(3, rc::gen::container<std::vector<i64>>(rc::gen::inRange<i64>(0, 5)));
    tensors.emplace_back(dtype, shape);
    auto* const bytes = static_cast<unsigned char*>(tensors.back().data());
    for (std::size_t n = 0; n < tensors.back().bytes(); ++n)
      bytes[n] = static_cast<unsigned char>(*rc::gen::inRange(0, 256));
  }
  std::vector<NamedTensor> named;
  for (std::size_t n = 0; n < tensors.size(); ++n) named.push_back({"t" + std::to_string(n), &tensors[n]});
  const ScratchFile scratch("round_trip.safetensors", "");
  RC_ASSERT(write_safetensors(scratch.path(), named, {{"key", "value \"quoted\" \u00e9"}}).has_value());
  const auto file = SafetensorsFile::open(scratch.path());
  RC_ASSERT(file.has_value());
  RC_ASSERT(file->header().tensors.size() == tensors.size());
  RC_ASSERT(file->header().metadata.at("key") == "value \"quoted\" \u00e9");
  RC_ASSERT(file->header().data_begin % 8 == 0u);
  for (std::size_t n = 0; n < tensors.size(); ++n) {
    const TensorInfo* const info = file->header().find("t" + std::to_string(n));
    RC_ASSERT(info != nullptr);
    RC_ASSERT(info->begin % static_cast<u64>(dtype_size(tensors[n].dtype())) == 0u);
    const auto data = file->read(*info);
    RC_ASSERT(data.has_value());
    RC_ASSERT(data->shape() == tensors[n].shape());
    RC_ASSERT(std::memcmp(data->data(), tensors[n].data(), tensors[n].bytes()) == 0);
  }
}

}  // namespace
}  // namespace iso::tool
