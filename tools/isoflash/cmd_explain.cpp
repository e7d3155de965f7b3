// `isoflash explain`: the error reference, from the catalogue that the library itself raises its errors from.
#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "isoflash/isoflash.h"
#include "spelling.h"
#include "terminal.h"

namespace iso::tool {
namespace {

using nlohmann::json;

struct ExplainOptions {
  std::string error;
  bool as_json = false, all = false, markdown = false;
};

std::vector<int> all_ids() {
  std::vector<int> ids;
  for (int id = isoflash_error_next(0); id != 0; id = isoflash_error_next(id)) ids.push_back(id);
  return ids;
}

json entry_of(int id) { return json::parse(isoflash_error_catalogue_json(id)); }

// Catalogue spelling of what was typed: "head-ratio" -> "HEAD_RATIO", "E1004" and "[1004]" -> "1004".
std::string normalised(const std::string& typed) {
  std::string out;
  for (const char c : typed) {
    if (c == '-' || c == ' ')
      out += '_';
    else if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
      out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  const bool numbered = out.size() > 1 && out[0] == 'E' && std::all_of(out.begin() + 1, out.end(), ::isdigit);
  return numbered ? out.substr(1) : out;
}

// The id that `typed` means; throws with the nearest ones if there is none.
int id_of(const std::string& typed) {
  const std::string wanted = normalised(typed);
  const bool number = !wanted.empty() && std::all_of(wanted.begin(), wanted.end(), ::isdigit);
  int wanted_id = -1;
  if (number) std::from_chars(wanted.data(), wanted.data() + wanted.size(), wanted_id);

  std::vector<std::pair<int, std::string>> nearest;  // distance, "id NAME"
  for (const int id : all_ids()) {
    const std::string name = entry_of(id).at("name");
    if (id == wanted_id || name == wanted) return id;
    // A part of a name is nearer than any misspelling.
    const bool part = !wanted.empty() && !number && name.find(wanted) != std::string::npos;
    nearest.emplace_back(number ? std::abs(id - wanted_id)
                         : part ? 0
                                : edit_distance(name, wanted),
                         fmt::format("{} {}", id, name));
  }
  std::stable_sort(nearest.begin(), nearest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string hint = "nearest:";
  for (std::size_t n = 0; n < std::min<std::size_t>(nearest.size(), 3); ++n) hint += (n ? ", " : " ") + nearest[n].second;
  throw UsageError(fmt::format("no error is called '{}'", typed), hint + "; isoflash explain --all lists every one");
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// A headed section of wrapped paragraphs; an array becomes a list.
void print_section(const Terminal& terminal, const char* heading, const json& content) {
  if (content.is_null() || content.empty()) return;
  fmt::print("\n{}\n", bold(terminal, heading));
  const int width = std::min(terminal.columns, 100);
  if (!content.is_array()) {
    for (const std::string& line : wrap(text_of(content), width, "  ")) fmt::print("{}\n", line);
    return;
  }
  for (const json& item : content) {
    bool first = true;
    for (const std::string& line : wrap(text_of(item), width, "    ")) {
      fmt::print("{}\n", first ? "  - " + line.substr(std::min<std::size_t>(4, line.size())) : line);
      first = false;
    }
  }
}

void print_code(const Terminal& terminal, const char* heading, const json& example, const char* key) {
  if (!example.is_object() || !example.contains(key)) return;
  fmt::print("\n{}\n", bold(terminal, heading));
  std::string code = text_of(example.at(key));
  for (std::size_t begin = 0; begin <= code.size();) {
    const std::size_t end = std::min(code.find('\n', begin), code.size());
    fmt::print("    {}\n", code.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::vector<std::string> field_lines(const json& fields) {
  std::vector<std::string> lines;
  for (const auto& [name, type] : fields.items()) lines.push_back(fmt::format("{} ({})", name, text_of(type)));
  return lines;
}

void print_entry(const json& entry, const Terminal& terminal) {
  const auto part = [&](const char* key) { return entry.value(key, json()); };
  fmt::print("{}\n", bold(terminal, fmt::format("{} {}: {}", entry.at("id").get<int>(), text_of(part("name")),
                                                text_of(part("title")))));
  fmt::print("{}\n", dim(terminal, fmt::format("exception: {}", text_of(part("exception")))));
  print_section(terminal, "Message", part("message"));
  print_section(terminal, "What it means", part("meaning"));
  print_section(terminal, "Solutions", part("solutions"));
  print_code(terminal, "Wrong", part("example"), "wrong");
  print_code(terminal, "Right", part("example"), "right");
  print_section(terminal, "When it happens", part("situations"));
  print_section(terminal, "Trigger", part("trigger"));
  print_section(terminal, "Raised by", part("raised_by"));
  print_section(terminal, "Fields", field_lines(part("fields")));
  std::vector<std::string> related;
  for (const json& other : part("related"))
    related.push_back(
        fmt::format("{} {}: {}", other.at("id").get<int>(), text_of(other.at("name")), text_of(other.at("title"))));
  print_section(terminal, "Related", related);
  print_section(terminal, "Page", part("docs"));
}

void print_list(const Terminal& terminal) {
  for (const int id : all_ids()) {
    const json entry = entry_of(id);
    const auto lines = wrap(text_of(entry.at("title")), std::min(terminal.columns, 100), std::string(6, ' '));
    fmt::print("{}  {}\n", bold(terminal, std::to_string(id)), text_of(entry.at("name")));
    for (const std::string& line : lines) fmt::print("{}\n", line);
  }
}

void explain(const ExplainOptions& o) {
  if (o.all != o.error.empty()) throw UsageError("explain takes an error id or name, or --all", "isoflash explain 1004");
  const Terminal terminal = terminal_of(stdout);
  if (o.all && o.as_json) {
    json entries = json::array();
    for (const int id : all_ids()) entries.push_back(entry_of(id));
    fmt::print("{}\n", entries.dump(2));
  } else if (o.all && o.markdown) {
    for (const int id : all_ids()) fmt::print("{}\n", isoflash_error_catalogue_markdown(id));
  } else if (o.all) {
    print_list(terminal);
  } else if (o.as_json) {
    fmt::print("{}\n", isoflash_error_catalogue_json(id_of(o.error)));
  } else if (o.markdown) {
    fmt::print("{}", isoflash_error_catalogue_markdown(id_of(o.error)));
  } else {
    print_entry(entry_of(id_of(o.error)), terminal);
  }
}

}  // namespace

void add_explain(CLI::App& app, int&) {
  auto o = std::make_shared<ExplainOptions>();
  CLI::App& c = *app.add_subcommand("explain", "Explain an error: what it means, when it happens, how to fix it.");
  c.add_option("error", o->error, "id or name, e.g. 1004 or head-ratio");
  c.add_flag("--all", o->all, "every error: a list, or everything with --json or --markdown");
  auto* as_json = c.add_flag("--json", o->as_json, "the catalogue entry as JSON");
  c.add_flag("--markdown", o->markdown, "the catalogue entry as its page docs/errors/<id>.md")->excludes(as_json);
  c.footer("Examples:\n  isoflash explain 1004\n  isoflash explain head-ratio --json\n  isoflash explain --all");
  c.callback([o] { explain(*o); });
}

}  // namespace iso::tool
