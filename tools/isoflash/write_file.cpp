#include "write_file.h"

#include "usage_error.h"
#include "whole_file.h"

namespace iso::tool {

void write_file(const std::string& path, std::string_view content) {
  WholeFile file(path);
  file.write(content.data(), content.size());
  if (const std::string reason = file.commit(); !reason.empty())
    value_or_usage_error(Expected<void>(raise(errors::FileWrite{.path = path, .reason = reason})));
}

}  // namespace iso::tool
