// What `isoflash demo` found out, and the page that shows it.
#pragma once

#include <string>
#include <vector>

#include "core/mask.h"
#include "verify.h"

namespace iso::tool {

struct DemoReport {
  std::string source;  // the file's name, or what was made up
  bool generated = false;

  struct SessionRow {
    std::string user;
    i64 history = 0, candidates = 0, positives = 0, rows = 0;
    i64 visible_pairs = 0;  // per head
  };
  std::vector<SessionRow> sessions;

  i64 num_heads_q = 0, num_heads_kv = 0, head_dim = 0;
  std::string dtype, kernel, processor;
  double forward_seconds = 0, forward_gflops = 0, backward_seconds = 0, backward_gflops = 0;
  std::size_t forward_workspace = 0, backward_workspace = 0;
  std::vector<Verified> findings;

  // (query, key) pairs per head: the visible ones; every sequence as a full rectangle; and that padded to the longest.
  i64 visible_pairs = 0, rectangle_pairs = 0, padded_pairs = 0;

  int tile = 0;  // tiles of tile x tile, over all sequences
  i64 tiles_full = 0, tiles_partial = 0, tiles_skipped = 0;

  // One user's sequence, small enough to draw.
  std::string mask_user;
  MaskSpec mask;

  // One candidate was exchanged for another item, and the same user run again.
  struct Isolation {
    std::string user;
    i64 first_candidate = 0, changed_row = 0;
    std::vector<double> change;   // per row: largest change of its output over heads and channels
    std::vector<bool> same_bits;  // per row
    bool holds() const;           // the changed row changed, no other row did
  } isolation;

  i64 total_rows() const;
};

// A self-contained HTML page: pictures inline, light and dark, for screens of any width.
std::string demo_page(const DemoReport& report);

}  // namespace iso::tool
