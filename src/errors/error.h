// Errors are values. Every error is an entry of catalogue.def; each entry gives one struct in iso::errors whose members
// are the error's fields, e.g.
//
//   return raise(errors::HeadRatio{.num_heads_q = q, .num_heads_kv = kv});
//
// A raise site that forgets a field does not compile (fields have no default constructor).
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/compile.h"

namespace iso {

namespace errors {

// The field types. Implicit on purpose: a raise site names the field and gives the value it has at hand.
struct Int {
  template <std::integral T>
  requires(!std::same_as<T, bool>) Int(T x) : value(static_cast<i64>(x)) {}
  i64 value;
};

struct Float {
  template <std::floating_point T>
  Float(T x) : value(static_cast<double>(x)) {}
  double value;
};

struct Str {
  Str(std::string x) : value(std::move(x)) {}
  Str(std::string_view x) : value(x) {}
  Str(const char* x) : value(x ? x : "") {}
  std::string value;
};

// One struct per entry.
#define ISO_FIELD(type, name) type name;
#define ISO_ERROR(id, NAME, Struct, exception, title, fields, ...) \
  struct Struct {                                                  \
    static constexpr int kId = id;                                 \
    fields                                                         \
  };
#include "errors/catalogue.def"

}  // namespace errors

enum class ErrorId : int {
#define ISO_ERROR(id, NAME, Struct, ...) k##Struct = id,
#include "errors/catalogue.def"
};

struct ErrorField {
  std::string_view name;
  std::variant<i64, double, std::string> value;
};

class Error {
 public:
  // For make_error(); raise sites use the structs of iso::errors.
  Error(ErrorId id, std::vector<ErrorField> fields);

  int id() const { return static_cast<int>(id_); }
  ErrorId error_id() const { return id_; }
  const std::string& name() const { return name_; }        // "HEAD_RATIO"
  const std::string& message() const { return message_; }  // one line: what, got, expected, fix
  const std::vector<ErrorField>& fields() const { return fields_; }
  std::string json() const;  // the catalogue entry with this error's message and field values

 private:
  ErrorId id_;
  std::string name_, message_;
  std::vector<ErrorField> fields_;
};

template <class T>
using Expected = tl::expected<T, Error>;

// One overload per entry.
#define ISO_ERROR(id, NAME, Struct, ...) Error make_error(const errors::Struct& error);
#include "errors/catalogue.def"

template <class E>
tl::unexpected<Error> raise(const E& error) {
  return tl::unexpected<Error>(make_error(error));
}

}  // namespace iso
