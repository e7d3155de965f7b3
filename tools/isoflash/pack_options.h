// The options of packing, shared by `isoflash pack` and `isoflash demo`.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "pack.h"

namespace iso::tool {

struct PackFlags {
  PackOptions values;
  i64 head_dim_v = 0;
  std::string dtype = "bf16", history = "bidirectional";

  void add_to(CLI::App& command);
  // With everything checked against everything; throws UsageError.
  PackOptions options() const;
};

}  // namespace iso::tool
