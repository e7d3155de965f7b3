// A file that appears whole or not at all. It is written under another name in the same folder and renamed when complete;
// a failure, or a signal that ends the program, removes what was written and leaves a file of that name as it was.
//
// What is not a regular file (/dev/stdout, a pipe), and a file that stdout or stderr is open on, is written directly.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace iso::tool {

// One at a time: the signal handler knows one name.
class WholeFile {
 public:
  explicit WholeFile(const std::string& path) : target_(path) {
    if (!open()) error_ = errno;
  }
  ~WholeFile() { (void)finish(); }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(const void* data, std::size_t size) {
    if (error_ == 0 && std::fwrite(data, 1, size, stream_) != size) note_error();
  }

  // Ends the writing: after it the file is there. The reason if it is not, else "".
  std::string commit() {
    complete_ = true;
    return finish() ? std::string() : std::strerror(error_);
  }

 private:
  void note_error() {
    if (error_ == 0) error_ = errno;
  }

  bool open() {
    struct stat old {};
    const bool exists = stat(target_.c_str(), &old) == 0;
    if (!exists && errno != ENOENT) return false;
    if (exists && (!S_ISREG(old.st_mode) || is_standard_stream(old))) {
      stream_ = std::fopen(target_.c_str(), "wb");
      return stream_ != nullptr;
    }
    // Renaming asks the folder, not the file, for permission.
    if (exists && faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) return false;
    resolve_links();
    if (!open_temporary()) return false;
    if (exists) (void)!fchmod(fileno(stream_), old.st_mode & 0777);
    return true;
  }

  static bool is_standard_stream(const struct stat& file) {
    struct stat stream {};
    for (const int number : {STDOUT_FILENO, STDERR_FILENO})
      if (fstat(number, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) return true;
    return false;
  }

  // A link stays and what it names is replaced. stat() followed the links already, so they end.
  void resolve_links() {
    std::error_code error;
    while (std::filesystem::is_symlink(target_, error))
      target_ = target_.parent_path() / std::filesystem::read_symlink(target_, error);
  }

  bool open_temporary() {
    constexpr int kNames = 100;  // an earlier program of the same number may have been killed
    for (int n = 0; n < kNames; ++n) {
      const std::string name = ".isoflash-" + std::to_string(getpid()) + "-" + std::to_string(n);
      const std::string path = (target_.parent_path() / name).string();
      stream_ = std::fopen(path.c_str(), "wbx");
      if (stream_ == nullptr && errno == EEXIST) continue;
      if (stream_ == nullptr) return false;
      temporary_ = path;
      remove_on_signal();
      return true;
    }
    return false;
  }

  bool finish() {
    if (stream_ != nullptr && std::fclose(std::exchange(stream_, nullptr)) != 0) note_error();
    if (temporary_.empty()) return error_ == 0;
    const bool renames = complete_ && error_ == 0;
    if (renames && std::rename(temporary_.c_str(), target_.c_str()) != 0) note_error();
    if (!renames || error_ != 0) unlink(temporary_.c_str());
    temporary_.clear();
    restore_signals();
    return error_ == 0;
  }

  static void remove_and_end(int signal) {
    unlink(interrupted_);
    ::raise(signal);  // whose default action is back (SA_RESETHAND)
  }

  // Signals that the program was told to ignore stay ignored. One that says "file too large" is left to errno.
  void remove_on_signal() {
    if (temporary_.size() >= sizeof interrupted_) return;
    std::memcpy(interrupted_, temporary_.c_str(), temporary_.size() + 1);
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ}) {
      struct sigaction before {
      }, now{};
      if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
      now.sa_handler = signal == SIGXFSZ ? SIG_IGN : remove_and_end;
      now.sa_flags = SA_RESETHAND | SA_NODEFER;
      if (sigaction(signal, &now, nullptr) == 0) handled_.push_back(signal);
    }
  }
  void restore_signals() {
    for (const int signal : handled_) std::signal(signal, SIG_DFL);
    handled_.clear();
  }

  std::filesystem::path target_;
  std::string temporary_;  // empty: target_ is written directly
  std::FILE* stream_ = nullptr;
  std::vector<int> handled_;
  int error_ = 0;  // the first errno
  bool complete_ = false;
  static inline char interrupted_[PATH_MAX];
};

}  // namespace iso::tool
