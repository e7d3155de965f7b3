// Logs of users meeting items: RecBole's `.inter` files, and made-up logs of the same shape.
//
// A `.inter` file is text: a header line of tab-separated `name:type` columns, then one interaction a line, e.g.
//
//   user_id:token <tab> item_id:token <tab> rating:float <tab> timestamp:float
//   196           <tab> 242           <tab> 3            <tab> 881250949
//
// Columns may come in any order; others than these four are ignored; rating may be absent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/compile.h"
#include "errors/error.h"

namespace iso::tool {

struct Interaction {
  u32 user = 0, item = 0;  // indices into the names
  float rating = 0;        // 0 if the log has no ratings
  double time = 0;
};

struct InteractionLog {
  std::vector<Interaction> events;        // in the order of the file
  std::vector<std::string> users, items;  // names, in the order of first appearance
};

// Longest line, and most interactions, that the reader takes.
inline constexpr std::size_t kMaxInteractionLine = 65536;
inline constexpr std::size_t kMaxInteractions = 100'000'000;

Expected<InteractionLog> read_interactions(const std::string& path);

// The same from text; `file` is the name for messages.
Expected<InteractionLog> parse_interactions(const std::string& file, std::string_view text);

// `users` made-up users: 20 to 737 interactions each, distributed like those of MovieLens 100K, over a catalogue of 1682
// items of which few are popular. The same for equal arguments, everywhere.
InteractionLog generate_interactions(u32 users, u64 seed);

}  // namespace iso::tool
