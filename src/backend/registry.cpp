#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/cpu_backend.h"

namespace iso {
namespace {

// In order of priority.
using Entry = const Backend& (*)();
constexpr Entry kBackends[] = {cpu_backend};

std::string backend_names() {
  std::string names = "auto";
  for (int n = 0; n < backend_count(); ++n) names += fmt::format(", {}", backend_at(n).name());
  return names;
}

}  // namespace

int backend_count() { return static_cast<int>(std::size(kBackends)); }
const Backend& backend_at(int index) { return kBackends[index](); }

Expected<void> choose_backend(Plan& plan, std::string_view name) {
  const bool any = name == "auto";
  std::string reasons;
  for (int n = 0; n < backend_count(); ++n) {
    const Backend& backend = backend_at(n);
    if (!any && name != backend.name()) continue;
    const std::string reason = backend.why_not(plan);
    if (reason.empty()) {
      plan.backend = &backend;
      return backend.prepare(plan);
    }
    if (!any) return raise(errors::BackendRefuses{.backend = name, .reason = reason});
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", backend.name(), reason);
  }
  if (!any) return raise(errors::BackendUnknown{.got = name, .known = backend_names()});
  return raise(errors::NoBackend{.reasons = reasons});
}

}  // namespace iso
