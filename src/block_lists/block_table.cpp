#include "block_lists/block_table.h"

#include <algorithm>

namespace iso {

bool operator==(const BlockRows& a, const BlockRows& b) {
  return a.begin == b.begin &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
                    [](const BlockEntry& x, const BlockEntry& y) { return x.block == y.block && x.kind == y.kind; });
}

BlockRows transpose(const BlockRows& rows, i64 num_blocks) {
  BlockRows out;
  out.begin.assign(static_cast<std::size_t>(num_blocks) + 1, 0);
  for (const BlockEntry& entry : rows.entries) ++out.begin[entry.block + 1];
  for (i64 n = 0; n < num_blocks; ++n) out.begin[n + 1] += out.begin[n];
  out.entries.resize(rows.entries.size());
  std::vector<i64> next = out.begin;
  for (i64 m = 0; m < rows.size(); ++m)
    for (const BlockEntry* entry = rows.first(m); entry != rows.last(m); ++entry)
      out.entries[next[entry->block]++] = {static_cast<i32>(m), entry->kind};
  return out;
}

BlockTable transpose(const BlockTable& table, const std::vector<i64>& num_blocks) {
  BlockTable out(table.packed, table.batch, table.heads);
  for (i64 b = 0; b < table.batch; ++b)
    for (i64 head = 0; head < table.heads; ++head) out.at(b, head) = transpose(table.at(b, head), num_blocks[b]);
  return out;
}

BlockTable shared(const BlockTable& table) {
  bool heads_alike = table.heads > 1, batch_alike = table.batch > 1 && !table.packed;
  for (i64 b = 0; b < table.batch; ++b) {
    for (i64 head = 0; head < table.heads; ++head) {
      heads_alike = heads_alike && table.at(b, head) == table.at(b, 0);
      batch_alike = batch_alike && table.at(b, head) == table.at(0, head);
    }
  }
  BlockTable out(table.packed, batch_alike ? 1 : table.batch, heads_alike ? 1 : table.heads);
  for (i64 b = 0; b < out.batch; ++b)
    for (i64 head = 0; head < out.heads; ++head) out.at(b, head) = table.at(b, head);
  return out;
}

}  // namespace iso
