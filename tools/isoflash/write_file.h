// Files that a command writes whole: pages, pictures, reports.
#pragma once

#include <string>
#include <string_view>

namespace iso::tool {

// Throws UsageError with FILE_WRITE if not every byte reached the file; what was there before is then untouched
// (whole_file.h).
void write_file(const std::string& path, std::string_view content);

}  // namespace iso::tool
