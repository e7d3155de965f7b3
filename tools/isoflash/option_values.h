// Which values the options of every command take.
#pragma once

#include <charconv>
#include <limits>
#include <string>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

namespace iso::tool {

// A decimal whole number from low to high, for Option::transform(). CLI11's own conversion takes -1 for the largest
// unsigned number and 2^64 for 2^64 - 1, and reads 010 as 8.
template <class T>
CLI::Validator whole_number(T low, T high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        T value{};
        const char* const end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data(), end, value);
        if (error != std::errc{} || rest != end || value < low || value > high)
          return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
        text = fmt::format("{}", value);
        return std::string();
      },
      high == std::numeric_limits<T>::max() ? fmt::format("from {}", low) : fmt::format("from {} to {}", low, high));
}

// Every option and argument of the command refuses '', which would otherwise pass for one that was not given: a script's
// unset variable would run everything, or write nothing.
inline void refuse_empty_values(CLI::App& command) {
  for (CLI::Option* const option : command.get_options())
    if (option->get_expected_min() > 0)
      option->check(CLI::Validator(
          [option](const std::string& text) {
            return text.empty() ? fmt::format("'' is no value; what it takes: {}", option->get_description())
                                : std::string();
          },
          ""));
}

}  // namespace iso::tool
