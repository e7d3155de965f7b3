// How far apart two words are, to suggest what may have been meant.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace iso::tool {

// Characters to insert, delete or replace to get from one to the other (Levenshtein).
inline int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (const char c : a) {
    int diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, diagonal + (c != b[j])}));
  }
  return row[b.size()];
}

}  // namespace iso::tool
