#include "errors/error.h"

#include <fmt/format.h>

#include "errors/catalogue.h"

namespace iso {
namespace {

std::string text_of(const ErrorField& field) {
  return std::visit([](const auto& value) { return fmt::format("{}", value); }, field.value);
}

// A message is one line, whatever a file or an option held: control characters are shown, not obeyed.
void append_printable(std::string& line, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
}

std::string fill_in(std::string_view message, const std::vector<ErrorField>& fields) {
  std::string line;
  while (!message.empty()) {
    const std::size_t open = message.find('{');
    line += message.substr(0, open);
    if (open == message.npos) break;
    const std::size_t close = message.find('}', open);
    const std::string_view name = message.substr(open + 1, close - open - 1);
    for (const ErrorField& field : fields)
      if (field.name == name) append_printable(line, text_of(field));
    message.remove_prefix(close + 1);
  }
  return line;
}

}  // namespace

Error::Error(ErrorId id, std::vector<ErrorField> fields) : id_(id), fields_(std::move(fields)) {
  const CatalogueEntry& entry = *find_error(static_cast<int>(id));
  name_ = entry.name;
  message_ = fill_in(entry.message, fields_);
}

#define ISO_FIELD(type, name) ErrorField{#name, error.name.value},
#define ISO_ERROR(id, NAME, Struct, exception, title, fields, ...)     \
  Error make_error([[maybe_unused]] const errors::Struct& error) {     \
    return Error(ErrorId::k##Struct, std::vector<ErrorField>{fields}); \
  }
#include "errors/catalogue.def"

}  // namespace iso
