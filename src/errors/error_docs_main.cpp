// isoflash_error_docs DIR: writes the files that are printed from the error catalogue below DIR, and removes pages of ids
// that are no longer in it. Exit code 0; 1 if a file cannot be written; 2 for wrong usage.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "errors/error_docs.h"

namespace {

namespace fs = std::filesystem;

bool write(const fs::path& path, const std::string& content) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: isoflash_error_docs DIR\nDIR is the root of the repository, or an empty folder\n");
    return 2;
  }
  const fs::path root = argv[1];
  std::set<fs::path> written;
  for (const iso::Document& document : iso::error_documents()) {
    const fs::path path = root / document.path;
    if (!write(path, document.content)) {
      std::fprintf(stderr, "isoflash_error_docs: cannot write %s; is %s a folder you may write to?\n", path.c_str(),
                   argv[1]);
      return 1;
    }
    written.insert(path);
  }
  std::error_code failed;
  for (const char* folder : {"docs/errors", "docs/api/errors"})
    for (const fs::directory_entry& page : fs::directory_iterator(root / folder, failed))
      if (!written.contains(page.path())) fs::remove(page.path(), failed);
  return 0;
}
