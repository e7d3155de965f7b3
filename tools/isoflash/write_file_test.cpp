#include "write_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <iterator>

#include "commands.h"
#include "png_file.h"
#include "scratch_file.h"

namespace iso::tool {
namespace {

TEST(WriteFile, ReplacesTheContent) {
  const ScratchFile file("written", "something longer");
  write_file(file.path(), "short");
  std::ifstream stream(file.path());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), "short");
}

TEST(WriteFile, SaysWhatFailed) {
  for (const std::string& content : {std::string("fits a buffer"), std::string(1 << 20, 'x')}) try {
      write_file("/dev/full", content);
      ADD_FAILURE() << "a full device took the content";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("[7002] cannot write /dev/full: No space left on device"));
    }
  EXPECT_THROW(write_file("/no/such/folder/file", ""), UsageError);
}

// libpng's own writer removes the file after a failure, and a device file is a file.
TEST(WriteFile, FailedPictureRemovesNothing) {
  const auto link = std::filesystem::temp_directory_path() / ("isoflash-" + std::to_string(getpid()) + "-link");
  std::filesystem::create_symlink("/dev/full", link);
  EXPECT_THROW(write_png(link.string(), Image(4, 4, Rgb{})), UsageError);
  EXPECT_TRUE(std::filesystem::is_symlink(link)) << "write_png must not remove what it cannot write";
  std::filesystem::remove(link);
}

}  // namespace
}  // namespace iso::tool
