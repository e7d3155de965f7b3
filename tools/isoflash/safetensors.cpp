#include "safetensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "whole_file.h"

namespace iso::tool {
namespace {

constexpr u64 kLengthBytes = 8;

// Bits of an element; 0 for a dtype this reader does not know.
int dtype_bits(const std::string& name) {
  static const std::map<std::string, int> kBits = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
                                                   {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
                                                   {"I32", 32},    {"U32", 32}, {"F32", 32}, {"I64", 64},    {"U64", 64},
                                                   {"F64", 64},    {"C64", 64}};
  const auto found = kBits.find(name);
  return found == kBits.end() ? 0 : found->second;
}

constexpr struct {
  DType dtype;
  const char* name;
} kNames[] = {{DType::f32, "F32"}, {DType::bf16, "BF16"}, {DType::f16, "F16"},
              {DType::f64, "F64"}, {DType::i32, "I32"},   {DType::i64, "I64"}};

const char* safetensors_name(DType dtype) {
  for (const auto& entry : kNames)
    if (entry.dtype == dtype) return entry.name;
  return "";
}

std::optional<DType> dtype_of(const std::string& name) {
  for (const auto& entry : kNames)
    if (name == entry.name) return entry.dtype;
  return std::nullopt;
}

// Product of non-negative sizes; nothing if it does not fit in 63 bits.
std::optional<i64> element_count(const std::vector<i64>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  i64 count = 1;
  for (const i64 size : shape)
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  return count;
}

// Takes the header's JSON event by event, so that memory stays in proportion to the tensors, a duplicate name is seen, and
// the first thing out of place ends the parse.
//
//   depth 1: the header object        depth 2: one tensor, or __metadata__        depth 3: shape or data_offsets
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderEvents(SafetensorsHeader& header) : header_(header) {}
  const std::string& problem() const { return problem_; }
  std::size_t position() const { return position_; }

  bool start_object(std::size_t) override {
    if (depth_ == 0) return enter();
    if (depth_ != 1) return unexpected("an object");
    in_metadata_ = key_ == "__metadata__";
    if (!in_metadata_) {
      header_.tensors.push_back({});
      header_.tensors.back().name = key_;
    }
    seen_ = {};
    return enter();
  }
  bool key(std::string& name) override {
    key_ = name;
    if (depth_ == 1) return names_.insert(name).second || fail(fmt::format("the name '{}' occurs twice", name));
    if (in_metadata_ || depth_ != 2) return true;
    bool* const seen = name == "dtype"          ? &seen_.dtype
                       : name == "shape"        ? &seen_.shape
                       : name == "data_offsets" ? &seen_.offsets
                                                : nullptr;
    if (seen == nullptr) return fail(fmt::format("tensor '{}' has an unknown entry '{}'", tensor().name, name));
    if (*seen) return fail(fmt::format("tensor '{}' has '{}' twice", tensor().name, name));
    return *seen = true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ != 1 || in_metadata_) return true;
    for (const auto& [present, what] :
         {std::pair{seen_.dtype, "dtype"}, {seen_.shape, "shape"}, {seen_.offsets, "data_offsets"}})
      if (!present) return fail(fmt::format("tensor '{}' has no {}", tensor().name, what));
    if (offsets_.size() != 2)
      return fail(fmt::format("tensor '{}' has {} data_offsets instead of 2", tensor().name, offsets_.size()));
    tensor().begin = offsets_[0];
    tensor().end = offsets_[1];
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || key_ == "dtype") return unexpected("a list");
    if (key_ == "data_offsets") offsets_.clear();
    return enter();
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_)
      return header_.metadata.emplace(key_, text).second || fail(fmt::format("metadata key '{}' occurs twice", key_));
    if (depth_ != 2 || key_ != "dtype") return unexpected("a text");
    tensor().dtype_name = text;
    tensor().dtype = dtype_of(text);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return unexpected("a number");
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return unexpected("a number beyond 2^63");
    if (key_ == "shape")
      tensor().shape.push_back(static_cast<i64>(value));
    else
      offsets_.push_back(value);
    return true;
  }
  bool number_integer(number_integer_t value) override { return unexpected(fmt::format("the negative number {}", value)); }
  bool number_float(number_float_t, const std::string& text) override { return unexpected("the number " + text); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool null() override { return unexpected("null"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    position_ = position;
    return fail("it is not valid JSON");
  }

 private:
  bool enter() {
    ++depth_;
    return true;
  }
  bool fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }
  bool unexpected(const std::string& what) {
    if (depth_ == 0) return fail(fmt::format("it is {} instead of an object", what));
    return fail(fmt::format("{} is out of place at '{}'", what, key_));
  }
  TensorInfo& tensor() { return header_.tensors.back(); }

  SafetensorsHeader& header_;
  std::set<std::string> names_;
  std::string key_, problem_;
  std::vector<u64> offsets_;
  std::size_t position_ = 0;
  int depth_ = 0;
  bool in_metadata_ = false;
  struct {
    bool dtype = false, shape = false, offsets = false;
  } seen_;
};

// What is wrong with one entry, given how many bytes of data the file has; empty if nothing.
std::string entry_problem(const TensorInfo& t, u64 data_bytes) {
  if (t.begin > t.end) return "its data ends before it begins";
  if (t.end > data_bytes) return fmt::format("its data ends past the end of the file, which has {} data bytes", data_bytes);
  const std::optional<i64> count = element_count(t.shape);
  const int bits = dtype_bits(t.dtype_name);
  if (!count) return "its shape has more than 2^63 elements";
  if (bits == 0) return {};
  i64 bytes = 0;
  if (__builtin_mul_overflow(*count, static_cast<i64>(bits / 8), &bytes) || static_cast<u64>(bytes) != t.bytes())
    return fmt::format("its shape and dtype make {} elements of {} bytes, its data_offsets {} bytes", *count, bits / 8,
                       t.bytes());
  return {};
}

tl::unexpected<Error> bad_tensor(const std::string& file, const TensorInfo& t, const std::string& reason) {
  return raise(errors::SafetensorsTensor{.path = file,
                                         .tensor = t.name,
                                         .dtype = t.dtype_name,
                                         .shape = shape_text(t.shape),
                                         .data = fmt::format("[{}, {})", t.begin, t.end),
                                         .reason = reason});
}

u64 header_length(std::span<const std::byte> start) {
  u64 length = 0;
  for (std::size_t n = kLengthBytes; n-- > 0;) length = length << 8 | static_cast<u64>(start[n]);
  return length;
}

std::string errno_text() { return std::strerror(errno); }

}  // namespace

std::string shape_text(const std::vector<i64>& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

i64 TensorInfo::elements() const { return element_count(shape).value_or(0); }

const TensorInfo* SafetensorsHeader::find(const std::string& name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Expected<SafetensorsHeader> parse_safetensors(const std::string& file, std::span<const std::byte> start, u64 file_bytes) {
  const auto not_safetensors = [&](u64 offset, const std::string& reason) {
    return raise(errors::SafetensorsHeader{.path = file, .offset = static_cast<i64>(offset), .reason = reason});
  };
  if (start.size() < kLengthBytes)
    return not_safetensors(0, fmt::format("the file has {} bytes, too few for the header's length", file_bytes));
  const u64 header_bytes = header_length(start);
  if (header_bytes > kMaxSafetensorsHeader)
    return not_safetensors(
        0, fmt::format("the header's length is {}, more than the limit {}", header_bytes, kMaxSafetensorsHeader));
  if (header_bytes > file_bytes - kLengthBytes || header_bytes > start.size() - kLengthBytes)
    return not_safetensors(
        0, fmt::format("the header's length is {}, but the file ends after {} bytes", header_bytes, file_bytes));

  SafetensorsHeader header;
  header.data_begin = kLengthBytes + header_bytes;
  HeaderEvents events(header);
  const char* const text = reinterpret_cast<const char*>(start.data()) + kLengthBytes;
  if (!nlohmann::json::sax_parse(text, text + header_bytes, &events))
    return not_safetensors(kLengthBytes + events.position(), "the header: " + events.problem());

  const u64 data_bytes = file_bytes - header.data_begin;
  for (const TensorInfo& t : header.tensors) {
    const std::string problem = entry_problem(t, data_bytes);
    if (!problem.empty()) return bad_tensor(file, t, problem);
  }

  std::vector<const TensorInfo*> by_place;
  for (const TensorInfo& t : header.tensors)
    if (t.begin < t.end) by_place.push_back(&t);
  std::sort(by_place.begin(), by_place.end(), [](const TensorInfo* a, const TensorInfo* b) { return a->begin < b->begin; });
  for (std::size_t n = 1; n < by_place.size(); ++n)
    if (by_place[n]->begin < by_place[n - 1]->end)
      return bad_tensor(file, *by_place[n],
                        fmt::format("it shares bytes with tensor '{}', at [{}, {})", by_place[n - 1]->name,
                                    by_place[n - 1]->begin, by_place[n - 1]->end));
  return header;
}

void TensorData::Free::operator()(void* p) const { std::free(p); }

TensorData::TensorData(DType dtype, std::vector<i64> shape) : dtype_(dtype), shape_(std::move(shape)) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t size = (bytes() / kAlignment + 1) * kAlignment;
  data_.reset(std::aligned_alloc(kAlignment, size));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, size);
}

i64 TensorData::elements() const { return element_count(shape_).value_or(0); }

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const auto unreadable = [&](const std::string& reason) {
    return raise(errors::FileOpen{.path = path, .reason = reason});
  };
  SafetensorsFile file;
  file.path_ = path;
  file.stream_.reset(std::fopen(path.c_str(), "rb"));
  if (!file.stream_) return unreadable(errno_text());
  struct stat info {};
  if (fstat(fileno(file.stream_.get()), &info) != 0) return unreadable(errno_text());
  if (!S_ISREG(info.st_mode)) return unreadable("not a regular file");

  const u64 file_bytes = static_cast<u64>(info.st_size);
  std::vector<std::byte> start(std::min(kLengthBytes, file_bytes));
  const auto read_to = [&](std::size_t from) {
    return std::fread(start.data() + from, 1, start.size() - from, file.stream_.get()) == start.size() - from;
  };
  if (!read_to(0)) return unreadable(errno_text());
  if (start.size() == kLengthBytes) {
    const u64 header_bytes = header_length(start);
    if (header_bytes <= std::min(kMaxSafetensorsHeader, file_bytes - kLengthBytes)) {
      start.resize(kLengthBytes + header_bytes);
      if (!read_to(kLengthBytes)) return unreadable(errno_text());
    }
  }
  auto header = parse_safetensors(path, start, file_bytes);
  if (!header) return tl::unexpected(header.error());
  file.header_ = *std::move(header);
  return file;
}

Expected<TensorData> SafetensorsFile::read(const TensorInfo& tensor) const {
  TensorData data(*tensor.dtype, tensor.shape);
  const bool done = fseeko(stream_.get(), static_cast<off_t>(header_.data_begin + tensor.begin), SEEK_SET) == 0 &&
                    std::fread(data.data(), 1, data.bytes(), stream_.get()) == data.bytes();
  if (!done)
    return raise(errors::FileOpen{.path = path_, .reason = fmt::format("reading tensor '{}' failed", tensor.name)});
  return data;
}

Expected<void> write_safetensors(const std::string& path, std::vector<NamedTensor> tensors,
                                 const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const int wide_a = dtype_size(a.tensor->dtype()), wide_b = dtype_size(b.tensor->dtype());
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  u64 offset = 0;
  for (const NamedTensor& t : tensors) {
    const u64 end = offset + t.tensor->bytes();
    header[t.name] = {
        {"dtype", safetensors_name(t.tensor->dtype())}, {"shape", t.tensor->shape()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  unsigned char length[kLengthBytes];
  for (u64 n = 0; n < kLengthBytes; ++n) length[n] = static_cast<unsigned char>(static_cast<u64>(text.size()) >> (8 * n));

  WholeFile file(path);
  file.write(length, sizeof length);
  file.write(text.data(), text.size());
  for (const NamedTensor& t : tensors) file.write(t.tensor->data(), t.tensor->bytes());
  if (const std::string reason = file.commit(); !reason.empty())
    return raise(errors::FileWrite{.path = path, .reason = reason});
  return {};
}

}  // namespace iso::tool
