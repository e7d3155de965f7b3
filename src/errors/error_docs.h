// The committed files that are printed from the catalogue.
#pragma once

#include <string>
#include <vector>

namespace iso {

struct Document {
  std::string path;  // from the root of the repository
  std::string content;
};

// docs/errors.md, docs/errors/<id>.md, docs/api/errors/<id>.json and include/isoflash/error_codes.h.
std::vector<Document> error_documents();

}  // namespace iso
