// The safetensors reader on arbitrary bytes. Whatever it accepts must keep its promises: every tensor lies inside the file,
// no two share a byte, and the bytes of a known dtype are those of its shape.
#include <algorithm>
#include <cstdlib>

#include "safetensors.h"

using namespace iso;
using namespace iso::tool;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto header = parse_safetensors("fuzz", {reinterpret_cast<const std::byte*>(data), size}, size);
  if (!header) {
    require(header.error().id() == errors::SafetensorsHeader::kId || header.error().id() == errors::SafetensorsTensor::kId);
    return 0;
  }
  require(header->data_begin <= size);
  std::vector<std::pair<u64, u64>> ranges;
  for (const TensorInfo& t : header->tensors) {
    require(header->find(t.name) == &t);
    require(t.begin <= t.end && t.end <= size - header->data_begin);
    if (t.dtype) require(static_cast<u64>(t.elements()) * static_cast<u64>(dtype_size(*t.dtype)) == t.bytes());
    if (t.begin < t.end) ranges.emplace_back(t.begin, t.end);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t n = 1; n < ranges.size(); ++n) require(ranges[n - 1].second <= ranges[n].first);
  return 0;
}
