// A file for the time of a test.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace iso::tool {

class ScratchFile {
 public:
  // In the system's folder for temporary files, unique to this process and `name`.
  ScratchFile(const std::string& name, const std::string& content)
      : path_((std::filesystem::temp_directory_path() / ("isoflash-" + std::to_string(getpid()) + "-" + name)).string()) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~ScratchFile() { std::remove(path_.c_str()); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace iso::tool
