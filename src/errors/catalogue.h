// The error catalogue as data: what catalogue.def says about each error, and the JSON and Markdown made from it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "errors/error.h"

namespace iso {

// What an entry's example leads to: a call of the C API, or nothing in particular, for a shell, Python or a kernel. The code
// of a C example is what precedes the call; it changes a valid `problem` and `options` (plan: dense tensors, packed: packed ones)
// or valid `args` (forward, backward, merge). One that builds block lists (lists) has the call itself, with a valid dense
// `problem` at hand. docs/errors.md describes them, error_examples_main.cpp makes a program of them.
enum class ExampleCall { plan, packed, forward, backward, merge, lists, shell, python, kernel };

struct ErrorExample {
  ExampleCall call;
  std::string_view wrong, right;

  bool in_c() const { return call < ExampleCall::shell; }
  std::string_view language() const {
    return in_c() ? "c" : call == ExampleCall::shell ? "sh" : call == ExampleCall::kernel ? "cpp" : "python";
  }
};

struct FieldSpec {
  std::string_view name;
  std::string_view type;  // "int", "string" or "float"
};

struct CatalogueEntry {
  int id;
  std::string_view name;         // HEAD_RATIO
  std::string_view struct_name;  // HeadRatio
  std::string_view exception;    // what a language binding raises: ValueError, NotImplementedError or RuntimeError
  std::string_view title;
  std::vector<FieldSpec> fields;
  std::string_view message;  // with {field} placeholders
  std::string_view meaning;
  std::string_view raised_by;
  std::string_view trigger;
  std::vector<std::string_view> situations, solutions;
  ErrorExample example;
  std::vector<int> related;
  std::string_view test;

  std::string docs() const { return "docs/errors/" + std::to_string(id) + ".md"; }
};

// All entries, ascending by id.
std::span<const CatalogueEntry> catalogue();
// nullptr for an unknown id.
const CatalogueEntry* find_error(int id);

// The example's code with the call at its end.
std::string example_code(const CatalogueEntry& entry, std::string_view code);

// The entry as a JSON object or a Markdown page; empty for an unknown id. The strings live as long as the program.
const std::string& catalogue_json(int id);
const std::string& catalogue_markdown(int id);

}  // namespace iso
