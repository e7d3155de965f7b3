// The Markdown page of a catalogue entry.
#include <fmt/format.h>

#include <map>

#include "errors/catalogue.h"

namespace iso {
namespace {

std::string bullets(const std::vector<std::string_view>& items, std::string_view mark) {
  std::string text;
  for (const std::string_view item : items) text += fmt::format("{} {}\n", mark, item);
  return text;
}

std::string page_of(const CatalogueEntry& entry) {
  std::string fields;
  for (const FieldSpec& field : entry.fields)
    fields += fmt::format("{}`{}` ({})", fields.empty() ? "" : ", ", field.name, field.type);

  std::string related;
  for (const int id : entry.related) {
    const CatalogueEntry& other = *find_error(id);
    related += fmt::format("- [{} {}]({}.md): {}\n", other.id, other.name, other.id, other.title);
  }

  std::string page = fmt::format("# {} {}: {}\n\n", entry.id, entry.name, entry.title);
  page += fmt::format("Exception kind: `{}`\n\n", entry.exception);
  page += fmt::format("```text\n{}\n```\n\n", entry.message);
  page += fields.empty() ? "Fields: none\n\n" : fmt::format("Fields: {}\n\n", fields);
  page += fmt::format("## What it means\n\n{}\n\n", entry.meaning);
  page += fmt::format("## Where it is raised\n\n`{}`; shown by the test `{}`.\n\n", entry.raised_by, entry.test);
  page += fmt::format("## Solutions\n\n{}\n", bullets(entry.solutions, "1."));
  page += fmt::format("## Example fix\n\nWrong:\n\n```{0}\n{1}\n```\n\nRight:\n\n```{0}\n{2}\n```\n\n",
                      entry.example.language(), example_code(entry, entry.example.wrong),
                      example_code(entry, entry.example.right));
  page += fmt::format("## When it happens\n\nTrigger: {}\n\nCommon situations:\n\n{}\n", entry.trigger,
                      bullets(entry.situations, "-"));
  page += fmt::format("## Related errors\n\n{}\n", related);
  page += fmt::format("[All errors](../errors.md) · [JSON](../api/errors/{0}.json) · `isoflash explain {0}`\n", entry.id);
  return page;
}

}  // namespace

const std::string& catalogue_markdown(int id) {
  static const std::map<int, std::string> pages = [] {
    std::map<int, std::string> made;
    for (const CatalogueEntry& entry : catalogue()) made[entry.id] = page_of(entry);
    return made;
  }();
  static const std::string none;
  const auto at = pages.find(id);
  return at == pages.end() ? none : at->second;
}

}  // namespace iso
