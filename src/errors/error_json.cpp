// JSON of an error and of a catalogue entry: one object, the same keys. In a catalogue entry `message` is the template and
// `fields` maps each field to its type; in an error that was raised they are the text and the values.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "errors/catalogue.h"

namespace iso {
namespace {

using Json = nlohmann::ordered_json;

Json entry_object(const CatalogueEntry& entry, std::string_view message, Json fields) {
  Json related = Json::array();
  for (const int id : entry.related) {
    const CatalogueEntry& other = *find_error(id);
    related.push_back({{"id", other.id}, {"name", other.name}, {"title", other.title}});
  }
  return Json{{"id", entry.id},
              {"name", entry.name},
              {"exception", entry.exception},
              {"title", entry.title},
              {"message", message},
              {"fields", std::move(fields)},
              {"meaning", entry.meaning},
              {"raised_by", entry.raised_by},
              {"trigger", entry.trigger},
              {"situations", entry.situations},
              {"solutions", entry.solutions},
              {"example",
               {{"wrong", example_code(entry, entry.example.wrong)},
                {"right", example_code(entry, entry.example.right)},
                {"language", entry.example.language()}}},
              {"related", std::move(related)},
              {"test", entry.test},
              {"docs", entry.docs()}};
}

Json value_of(i64 value) { return value; }
Json value_of(const std::string& value) { return value; }
// JSON has no infinity and no NaN; they are given as strings, like in the message.
Json value_of(double value) { return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)); }

// Text that came from outside may not be UTF-8; it is replaced rather than refused.
std::string dump(const Json& object) { return object.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string Error::json() const {
  Json values = Json::object();
  for (const ErrorField& field : fields_)
    values[std::string(field.name)] = std::visit([](const auto& value) { return value_of(value); }, field.value);
  return dump(entry_object(*find_error(id()), message_, std::move(values)));
}

const std::string& catalogue_json(int id) {
  static const std::map<int, std::string> pages = [] {
    std::map<int, std::string> made;
    for (const CatalogueEntry& entry : catalogue()) {
      Json types = Json::object();
      for (const FieldSpec& field : entry.fields) types[std::string(field.name)] = field.type;
      made[entry.id] = dump(entry_object(entry, entry.message, std::move(types)));
    }
    return made;
  }();
  static const std::string none;
  const auto at = pages.find(id);
  return at == pages.end() ? none : at->second;
}

}  // namespace iso
