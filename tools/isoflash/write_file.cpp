#include "write_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "usage_error.h"

namespace iso::tool {

void write_file(const std::string& path, std::string_view content) {
  std::FILE* const stream = std::fopen(path.c_str(), "wb");
  const bool written = stream != nullptr && std::fwrite(content.data(), 1, content.size(), stream) == content.size();
  int code = errno;
  bool closed = true;
  if (stream != nullptr && std::fclose(stream) != 0) {
    closed = false;
    if (written) code = errno;
  }
  if (!written || !closed)
    value_or_usage_error(Expected<void>(raise(errors::FileWrite{.path = path, .reason = std::strerror(code)})));
}

}  // namespace iso::tool
