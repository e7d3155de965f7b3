#include "errors/error_docs.h"

#include <fmt/format.h>

#include "errors/catalogue.h"

namespace iso {
namespace {

constexpr std::string_view kIndexHead = R"(# Errors

Every call of isoflash that can fail returns a status: 0, or the id of one of the errors below. The numbers and names are
stable: an id is never given to another error. `isoflash/error_codes.h` has them as C constants.

An error carries one line of text (which argument, what was got, what is expected, the fix) and the same as JSON:

| key | content |
| --- | --- |
| `id`, `name` | number and name, e.g. 1004 and `HEAD_RATIO` |
| `exception` | what a language binding raises: `ValueError`, `NotImplementedError` or `RuntimeError` |
| `title` | what went wrong, in a few words |
| `message` | the line of text; in a catalogue entry, with `{field}` placeholders |
| `fields` | field name to value; in a catalogue entry, field name to type (`int`, `string`, `float`) |
| `meaning` | what the rule is and why there is one |
| `raised_by` | source file of the check |
| `trigger`, `situations` | the exact condition, and how callers usually meet it |
| `solutions` | what to do, most likely first |
| `example` | `wrong` and `right` code, and its `language` (`c`, `sh`, `python` or `cpp`) |
| `related` | other errors worth a look: `id`, `name`, `title` |
| `test` | the test that raises the error |
| `docs` | its page |

C: `isoflash_error_message`, `isoflash_error_json`; any entry by id: `isoflash_error_catalogue_json`,
`isoflash_error_catalogue_markdown`. Command line: `isoflash explain 1004`, `isoflash explain --all --json`.

The C examples of the pages change a call that is right otherwise. `problem` is dense, with batch 2, seqlen_q = seqlen_kv
= 128, num_heads_q = 4, num_heads_kv = 2, head_dim = head_dim_v = 64, bfloat16, and lse; where the example is about
packing, its 256 rows are packed as sequences of 100 and 156. `args` are the arguments of a call of the plan made for it,
or of a merge of two such results, `outs` and `lses`.
`data` is memory enough for whatever is named. A test runs them all: the wrong ones raise their error, the right ones
succeed.

These pages are printed from `src/errors/catalogue.def` by `isoflash_error_docs`.
)";

std::string_view range_title(int range) {
  switch (range) {
    case 1: return "Shapes";
    case 2: return "Dtypes and layout";
    case 3: return "Masks and packing";
    case 4: return "Paging and cached keys";
    case 5: return "Device and backend";
    case 6: return "Plan and workspace";
    case 7: return "Files and command line";
    default: return "Internal";
  }
}

std::string index_page() {
  std::string page(kIndexHead);
  int range = 0;
  for (const CatalogueEntry& entry : catalogue()) {
    if (entry.id / 1000 != range) {
      range = entry.id / 1000;
      page += fmt::format("\n## {}xxx: {}\n\n", range, range_title(range));
      page += "| id | name | exception | what went wrong |\n| --- | --- | --- | --- |\n";
    }
    page +=
        fmt::format("| [{0}](errors/{0}.md) | `{1}` | {2} | {3} |\n", entry.id, entry.name, entry.exception, entry.title);
  }
  return page;
}

std::string codes_header() {
  std::string text =
      "/* Error ids: the values of isoflash_status other than ISOFLASH_OK. Printed from src/errors/catalogue.def by\n"
      " * isoflash_error_docs; docs/errors.md explains each. Numbers and names are stable. */\n"
      "#ifndef ISOFLASH_ERROR_CODES_H\n#define ISOFLASH_ERROR_CODES_H\n\ntypedef enum isoflash_error_code {\n";
  const auto entries = catalogue();
  for (const CatalogueEntry& entry : entries) {
    const bool last = entry.id == entries.back().id;
    text += fmt::format("  ISOFLASH_ERROR_{} = {}{} /* {} */\n", entry.name, entry.id, last ? "" : ",", entry.title);
  }
  return text + "} isoflash_error_code;\n\n#endif /* ISOFLASH_ERROR_CODES_H */\n";
}

}  // namespace

std::vector<Document> error_documents() {
  std::vector<Document> documents = {{"docs/errors.md", index_page()}, {"include/isoflash/error_codes.h", codes_header()}};
  for (const CatalogueEntry& entry : catalogue()) {
    documents.push_back({entry.docs(), catalogue_markdown(entry.id)});
    documents.push_back({fmt::format("docs/api/errors/{}.json", entry.id), catalogue_json(entry.id) + "\n"});
  }
  return documents;
}

}  // namespace iso
