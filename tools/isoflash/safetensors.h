// The safetensors file format: a table of named tensors that Python, Rust and others read and write.
//
//   8 bytes          length N of the header, little-endian
//   N bytes          header, JSON: {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
//                    "__metadata__": {"key": "text", ...}}, may end in spaces
//   the rest         the tensors' elements, row-major; data_offsets count from here
//
// The reader trusts nothing in the file: every number is checked before it is used, and every finding is an error that
// names the file and the tensor. It takes files of any writer: keys in any order, padding anywhere, dtypes it does not know
// (an error only for who asks for such a tensor). It refuses duplicate names and tensors that share bytes.
#pragma once

#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "errors/error.h"

namespace iso::tool {

// Longest header accepted, the limit of the format's own library.
inline constexpr u64 kMaxSafetensorsHeader = 100'000'000;

// "(2, 3)"
std::string shape_text(const std::vector<i64>& shape);

struct TensorInfo {
  std::string name;
  std::string dtype_name;      // as the file has it
  std::optional<DType> dtype;  // if it is one of ours
  std::vector<i64> shape;
  u64 begin = 0, end = 0;  // bytes, from the start of the data

  i64 elements() const;
  u64 bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  u64 data_begin = 0;  // offset of the data in the file
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;

  const TensorInfo* find(const std::string& name) const;
};

// Reads and checks the header. `file` is the name for messages; `start` holds the first min(file_bytes, 8 + header length)
// bytes of the file or more; `file_bytes` is the file's size.
Expected<SafetensorsHeader> parse_safetensors(const std::string& file, std::span<const std::byte> start, u64 file_bytes);

// Elements of one tensor, aligned for any instruction.
class TensorData {
 public:
  TensorData() = default;
  TensorData(DType dtype, std::vector<i64> shape);  // zeros

  DType dtype() const { return dtype_; }
  const std::vector<i64>& shape() const { return shape_; }
  i64 elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * dtype_size(dtype_); }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  // The elements as T, which must be the dtype's type.
  template <class T>
  std::span<T> as() {
    return {static_cast<T*>(data()), static_cast<std::size_t>(elements())};
  }
  template <class T>
  std::span<const T> as() const {
    return {static_cast<const T*>(data()), static_cast<std::size_t>(elements())};
  }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  DType dtype_ = DType::f32;
  std::vector<i64> shape_;
  std::unique_ptr<void, Free> data_;
};

class SafetensorsFile {
 public:
  static Expected<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // Reads one tensor, which must be one of header() with a known dtype.
  Expected<TensorData> read(const TensorInfo& tensor) const;

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> stream_;
  SafetensorsHeader header_;
};

struct NamedTensor {
  std::string name;
  const TensorData* tensor;
};

// Writes the tensors without holes, wide elements first (so that every tensor is aligned to its element), names in order
// within a width: equal input gives equal bytes.
Expected<void> write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                                 const std::map<std::string, std::string>& metadata);

}  // namespace iso::tool
