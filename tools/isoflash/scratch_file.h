// A file, or a folder, for the time of a test.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
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

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("isoflash-" + std::to_string(getpid()) + "-" + name)) {
    std::filesystem::create_directory(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }
  // Names in it, hidden ones too.
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) out.insert(entry.path().filename().string());
    return out;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace iso::tool
