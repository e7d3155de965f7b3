#include "write_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <iterator>

#include "commands.h"
#include "png_file.h"
#include "scratch_file.h"
#include "whole_file.h"

namespace iso::tool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string content_of(const std::string& path) {
  std::ifstream stream(path);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// What write_file says, "" if it wrote.
std::string failure(const std::string& path, const std::string& content) {
  try {
    write_file(path, content);
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

// No file may grow beyond `bytes` while it lives: a disk that runs full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

// Root may write everywhere; another user may not.
class OrdinaryUser {
 public:
  OrdinaryUser() {
    if (before_ == 0) (void)!seteuid(65534);
  }
  ~OrdinaryUser() { (void)!seteuid(before_); }

 private:
  uid_t before_ = geteuid();
};

TEST(WriteFile, ReplacesTheContent) {
  const ScratchFolder folder("replaced");
  std::ofstream(folder.file("f")) << "something longer";
  chmod(folder.file("f").c_str(), 0640);
  write_file(folder.file("f"), "short");
  EXPECT_EQ(content_of(folder.file("f")), "short");
  struct stat info {};
  stat(folder.file("f").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0640u) << "the file's permissions must stay";
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

TEST(WriteFile, NewFileHasTheUsualPermissions) {
  const ScratchFolder folder("new");
  const mode_t mask = umask(027);
  write_file(folder.file("f"), "x");
  umask(mask);
  struct stat info {};
  stat(folder.file("f").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(WriteFile, LinksStay) {
  const ScratchFolder folder("links");
  std::filesystem::create_directory(folder.file("sub"));
  std::filesystem::create_symlink("sub/file", folder.file("one"));
  std::filesystem::create_symlink("one", folder.file("two"));
  for (const char* content : {"made", "replaced"}) {
    write_file(folder.file("two"), content);
    EXPECT_EQ(content_of(folder.file("sub/file")), content);
    EXPECT_TRUE(std::filesystem::is_symlink(folder.file("one")) && std::filesystem::is_symlink(folder.file("two")));
  }
  EXPECT_THAT(folder.names(), ElementsAre("one", "sub", "two"));
  std::filesystem::create_symlink("loop", folder.file("loop"));
  EXPECT_THAT(failure(folder.file("loop"), "x"), HasSubstr("Too many levels of symbolic links"));
}

TEST(WriteFile, SaysWhatFailed) {
  for (const std::string& content : {std::string("fits a buffer"), std::string(1 << 20, 'x')})
    EXPECT_THAT(failure("/dev/full", content), HasSubstr("[7002] cannot write /dev/full: No space left on device"));
  EXPECT_THAT(failure("/no/such/folder/file", ""), HasSubstr("No such file or directory"));
  EXPECT_THAT(failure("/", ""), HasSubstr("Is a directory"));
}

TEST(WriteFile, FailureLeavesTheFolderAsItWas) {
  const ScratchFolder folder("full");
  std::ofstream(folder.file("f")) << "old";
  {
    const FileSizeLimit limit(4096);
    const std::string content(1 << 20, 'x');
    EXPECT_THAT(failure(folder.file("f"), content), HasSubstr("cannot write " + folder.file("f") + ": File too large"));
    EXPECT_THAT(failure(folder.file("new"), content), HasSubstr("File too large"));
  }
  EXPECT_EQ(content_of(folder.file("f")), "old");
  EXPECT_THAT(folder.names(), ElementsAre("f"));
}

TEST(WriteFile, AsksForPermission) {
  const ScratchFolder closed("closed"), open("open");
  std::ofstream(open.file("protected")) << "old";
  chmod(open.path().c_str(), 0777);
  chmod(open.file("protected").c_str(), 0444);
  chmod(closed.path().c_str(), 0555);
  {
    const OrdinaryUser user;
    ASSERT_NE(geteuid(), 0u) << "this test needs to become another user";
    EXPECT_THAT(failure(closed.file("f"), "new"), HasSubstr("Permission denied"));
    EXPECT_THAT(failure(open.file("protected"), "new"), HasSubstr("Permission denied"));
  }
  chmod(closed.path().c_str(), 0755);
  EXPECT_TRUE(closed.names().empty());
  EXPECT_EQ(content_of(open.file("protected")), "old");
  EXPECT_THAT(open.names(), ElementsAre("protected"));
}

TEST(WriteFile, InterruptedOneLeavesNothing) {
  const ScratchFolder folder("interrupted");
  std::ofstream(folder.file("f")) << "old";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    if (child == 0) {
      WholeFile file(folder.file("f"));
      file.write("new", 3);
      raise(signal);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << "the signal must still end the program";
    EXPECT_EQ(content_of(folder.file("f")), "old");
    EXPECT_THAT(folder.names(), ElementsAre("f"));
  }
}

TEST(WriteFile, GivenUpOneLeavesNothing) {
  const ScratchFolder folder("given-up");
  {
    WholeFile file(folder.file("f"));
    file.write("new", 3);
    EXPECT_THAT(folder.names(), testing::SizeIs(1));
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(WriteFile, PipesAreWrittenDirectly) {
  const ScratchFolder folder("pipe");
  const std::string path = folder.file("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  write_file(path, "through");
  char text[16] = {};
  EXPECT_EQ(read(reader, text, sizeof text), 7);
  EXPECT_STREQ(text, "through");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

// libpng's own writer removes the file after a failure, and a device file is a file.
TEST(WriteFile, FailedPictureRemovesNothing) {
  const ScratchFolder folder("picture");
  std::filesystem::create_symlink("/dev/full", folder.file("link"));
  EXPECT_THROW(write_png(folder.file("link"), Image(4, 4, Rgb{})), UsageError);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link"))) << "write_png must not remove what it cannot write";
}

}  // namespace
}  // namespace iso::tool
