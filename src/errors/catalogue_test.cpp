#include "errors/catalogue.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "errors/error_docs.h"
#include "isoflash/error_codes.h"

namespace iso {
namespace {

// The committed header against the catalogue: a number that differs does not compile. (Run isoflash_error_docs.)
#define ISO_ERROR(id, NAME, Struct, ...) static_assert(ISOFLASH_ERROR_##NAME == id && errors::Struct::kId == id);
#include "errors/catalogue.def"

TEST(Catalogue, IdIsInARangeInUse) {
  for (const CatalogueEntry& e : catalogue()) {
    SCOPED_TRACE(e.name);
    EXPECT_TRUE((std::set{1, 2, 3, 4, 5, 6, 7, 8, 9}.contains(e.id / 1000))) << e.id;
  }
}

TEST(Catalogue, ExceptionIsOneOfThree) {
  for (const CatalogueEntry& e : catalogue()) {
    SCOPED_TRACE(e.name);
    const std::set<std::string_view> kinds = {"ValueError", "NotImplementedError", "RuntimeError"};
    EXPECT_TRUE(kinds.contains(e.exception)) << e.exception;
  }
}

void expect_text(std::string_view what, std::string_view text) {
  EXPECT_FALSE(text.empty()) << what << " is empty: fill it in";
  if (text.empty()) return;
  EXPECT_EQ(text.find('\n'), text.npos) << what << " must be one line";
  EXPECT_NE(text.front(), ' ') << what;
  EXPECT_NE(text.back(), ' ') << what;
  EXPECT_EQ(text.find("  "), text.npos) << what << " has a double space";
}

TEST(Catalogue, TextsAreComplete) {
  for (const CatalogueEntry& e : catalogue()) {
    SCOPED_TRACE(e.name);
    expect_text("TITLE", e.title);
    expect_text("MESSAGE", e.message);
    expect_text("MEANING", e.meaning);
    expect_text("RAISED_BY", e.raised_by);
    expect_text("TRIGGER", e.trigger);
    EXPECT_FALSE(e.situations.empty());
    EXPECT_FALSE(e.solutions.empty());
    for (const auto text : e.situations) expect_text("SITUATIONS", text);
    for (const auto text : e.solutions) expect_text("SOLUTIONS", text);
    EXPECT_FALSE(e.example.wrong.empty());
    EXPECT_FALSE(e.example.right.empty());
    EXPECT_NE(e.example.wrong, e.example.right) << "the example must show a difference";
    // A driver's errors need a driver that fails, and are raised where such a one is made up.
    const bool of_driver = e.id / 100 == 51;
    if (!of_driver) EXPECT_EQ(e.test, "ErrorsRaised." + std::string(e.struct_name));
  }
}

TEST(Catalogue, RelatedEntriesExist) {
  for (const CatalogueEntry& e : catalogue()) {
    SCOPED_TRACE(e.name);
    EXPECT_FALSE(e.related.empty());
    std::set<int> seen;
    for (const int id : e.related) {
      EXPECT_NE(find_error(id), nullptr) << id << " is not in the catalogue";
      EXPECT_NE(id, e.id) << "an error is not related to itself";
      EXPECT_TRUE(seen.insert(id).second) << id << " is named twice";
    }
  }
}

TEST(Catalogue, JsonParsesAndHasEveryKey) {
  for (const CatalogueEntry& e : catalogue()) {
    SCOPED_TRACE(e.name);
    const auto json = nlohmann::json::parse(catalogue_json(e.id));
    std::set<std::string> keys;
    for (const auto& [key, value] : json.items()) keys.insert(key);
    EXPECT_EQ(keys, (std::set<std::string>{"docs", "example", "exception", "fields", "id", "meaning", "message", "name",
                                           "raised_by", "related", "situations", "solutions", "test", "title", "trigger"}));
    EXPECT_EQ(json.at("id"), e.id);
    EXPECT_EQ(json.at("name"), e.name);
    EXPECT_EQ(json.at("message"), e.message);
    EXPECT_EQ(json.at("fields").size(), e.fields.size());
    for (const FieldSpec& field : e.fields) EXPECT_EQ(json.at("fields").at(std::string(field.name)), field.type);
    EXPECT_EQ(json.at("solutions").size(), e.solutions.size());
    EXPECT_EQ(json.at("related").size(), e.related.size());
    EXPECT_EQ(json.at("example").at("language"), e.example.language());
    EXPECT_NE(json.at("example").at("wrong"), json.at("example").at("right"));
  }
}

TEST(Catalogue, MarkdownHasEverySection) {
  for (const CatalogueEntry& e : catalogue()) {
    SCOPED_TRACE(e.name);
    const std::string& page = catalogue_markdown(e.id);
    std::size_t at = 0;
    const std::string heading = "# " + std::to_string(e.id) + " " + std::string(e.name);
    for (const char* part : {heading.c_str(), "Exception kind: `", "```text\n", "## What it means", "## Where it is raised",
                             "## Solutions", "## Example fix", "Wrong:", "Right:", "## When it happens",
                             "Trigger: ", "Common situations:", "## Related errors"}) {
      at = page.find(part, at);
      ASSERT_NE(at, page.npos) << "missing, or out of order: " << part;
    }
    for (const auto solution : e.solutions) EXPECT_NE(page.find(solution), page.npos);
    for (const auto situation : e.situations) EXPECT_NE(page.find(situation), page.npos);
  }
}

TEST(Catalogue, HasNoUnknownIds) {
  EXPECT_EQ(find_error(0), nullptr);
  EXPECT_EQ(find_error(1000), nullptr);
  EXPECT_TRUE(catalogue_json(1000).empty());
  EXPECT_TRUE(catalogue_markdown(1000).empty());
}

TEST(Catalogue, DocumentsAreAllThere) {
  std::set<std::string> paths;
  for (const Document& document : error_documents()) {
    EXPECT_TRUE(paths.insert(document.path).second) << document.path << " is printed twice";
    EXPECT_EQ(document.content.back(), '\n') << document.path;
  }
  EXPECT_EQ(paths.size(), 2 + 2 * catalogue().size());
  EXPECT_TRUE(paths.contains("docs/errors.md"));
  EXPECT_TRUE(paths.contains("docs/errors/2005.md"));
  EXPECT_TRUE(paths.contains("docs/api/errors/2005.json"));
  EXPECT_TRUE(paths.contains("include/isoflash/error_codes.h"));
}

// The message of a layout error is the model of its kind: all that was got is in it.
TEST(Catalogue, GradientLayoutSaysWhatWasGot) {
  const Error error = make_error(errors::GradientLayout{.tensor = "dk",
                                                        .role = "gradient of k",
                                                        .shape = "(2, 128, 2, 64)",
                                                        .strides = "(0, 128, 64, 1)",
                                                        .dtype = "bfloat16",
                                                        .axis = "batch (axis 0)",
                                                        .stride = 0,
                                                        .contiguous_axis = "head_dim (axis 3)"});
  for (const char* part : {"dk", "gradient of k", "(2, 128, 2, 64)", "(0, 128, 64, 1)", "bfloat16", "batch (axis 0)",
                           "head_dim (axis 3)", "required", "allocate"})
    EXPECT_NE(error.message().find(part), std::string::npos) << part << " is missing in: " << error.message();
}

}  // namespace
}  // namespace iso
