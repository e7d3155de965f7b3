// How an error of the catalogue leaves a command: as a UsageError with its id and message; the hint is `isoflash explain`.
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

#include "commands.h"
#include "errors/error.h"

namespace iso::tool {

[[noreturn]] inline void throw_usage_error(int id, const std::string& message) {
  throw UsageError(fmt::format("[{}] {}", id, message), fmt::format("isoflash explain {}", id));
}

template <class T>
T value_or_usage_error(Expected<T> result) {
  if (!result) throw_usage_error(result.error().id(), result.error().message());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace iso::tool
