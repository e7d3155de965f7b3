#include "errors/catalogue.h"

#include <algorithm>
#include <functional>
#include <initializer_list>

namespace iso {
namespace {

// The {placeholders} of a message and the fields of its entry must be the same set.
consteval bool placeholders_are_fields(std::string_view message, std::initializer_list<std::string_view> fields) {
  for (std::size_t open = message.find('{'); open != message.npos; open = message.find('{', open + 1)) {
    const std::size_t close = message.find('}', open);
    if (close == message.npos) return false;
    const std::string_view name = message.substr(open + 1, close - open - 1);
    if (std::find(fields.begin(), fields.end(), name) == fields.end()) return false;
  }
  for (const std::string_view field : fields) {
    bool found = false;
    for (std::size_t at = message.find(field); at != message.npos; at = message.find(field, at + 1))
      if (at > 0 && message[at - 1] == '{' && at + field.size() < message.size() && message[at + field.size()] == '}')
        found = true;
    if (!found) return false;
  }
  return true;
}

static_assert(placeholders_are_fields("{a} and {b}", {"b", "a"}));
static_assert(placeholders_are_fields("nothing", {}));
static_assert(!placeholders_are_fields("{a} and {b}", {"a"}));
static_assert(!placeholders_are_fields("{a}, not b", {"a", "b"}));
static_assert(!placeholders_are_fields("{a", {"a"}));

// HEAD_RATIO is spelled HeadRatio.
consteval bool spelled_alike(std::string_view name, std::string_view struct_name) {
  std::size_t at = 0;
  bool word_begins = true;
  for (const char c : name) {
    if (c == '_') {
      word_begins = true;
      continue;
    }
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (at == struct_name.size() || struct_name[at++] != (word_begins ? c : lower)) return false;
    word_begins = false;
  }
  return at == struct_name.size();
}

#define ISO_FIELD(type, name) #name,
#define ISO_ERROR(id, NAME, Struct, exception, title, fields, message, ...)                                          \
  static_assert(placeholders_are_fields(message, {fields}), #NAME ": MESSAGE must use each field, and only fields"); \
  static_assert(spelled_alike(#NAME, #Struct), #NAME " and its struct's name differ");
#include "errors/catalogue.def"

consteval bool strictly_ascending(std::initializer_list<int> ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
}

static_assert(strictly_ascending({
#define ISO_ERROR(id, ...) id,
#include "errors/catalogue.def"
              }),
              "catalogue.def: ids must be unique and ascending");

constexpr std::string_view kInt = "int", kStr = "string", kFloat = "float";

}  // namespace

std::span<const CatalogueEntry> catalogue() {
  static const std::vector<CatalogueEntry> entries = {
#define ISO_FIELD(type, name) FieldSpec{#name, k##type},
#define ISO_ERROR(id, NAME, Struct, exception, title, fields, message, meaning, raised_by, trigger, situations, solutions, \
                  example, related, test)                                                                                  \
  CatalogueEntry{id,        #NAME,   #Struct,    #exception, title,   {fields}, message, meaning,                          \
                 raised_by, trigger, situations, solutions,  example, related,  test},
#include "errors/catalogue.def"
  };
  return entries;
}

const CatalogueEntry* find_error(int id) {
  const auto entries = catalogue();
  const auto at = std::find_if(entries.begin(), entries.end(), [id](const CatalogueEntry& e) { return e.id == id; });
  return at == entries.end() ? nullptr : &*at;
}

std::string example_code(const CatalogueEntry& entry, std::string_view code) {
  std::string text(code);
  switch (entry.example.call) {
    case ExampleCall::plan:
    case ExampleCall::packed: return text + "\nisoflash_plan_create(&problem, &options, &plan, error);";
    case ExampleCall::forward: return text + "\nisoflash_forward(plan, &args, error);";
    case ExampleCall::backward: return text + "\nisoflash_backward(plan, &args, error);";
    case ExampleCall::merge: return text + "\nisoflash_merge(&args, error);";
    case ExampleCall::lists:
    case ExampleCall::shell:
    case ExampleCall::python:
    case ExampleCall::kernel: break;
  }
  return text;
}

}  // namespace iso
