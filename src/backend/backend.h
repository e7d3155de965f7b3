// The interface every backend implements. One decision function, why_not(), answers "supported?" for plans, for the C ABI
// and for `isoflash list --why`.
#pragma once

#include <string>
#include <string_view>

#include "errors/error.h"
#include "plan/plan.h"

namespace iso {

struct Workspace {
  void* data = nullptr;
  std::size_t size = 0;
  void* stream = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  // Empty if this backend serves the plan's problem on this machine, else the first requirement that fails and the fix.
  virtual std::string why_not(const Plan& plan) const = 0;
  // Fills kernel, workspaces and state. Called once, after why_not() said nothing.
  virtual Expected<void> prepare(Plan& plan) const = 0;
  // Tensors and workspace are validated. Neither allocates nor synchronises.
  virtual Expected<void> forward(const Plan& plan, const ForwardTensors& tensors, const Workspace& workspace) const = 0;
  virtual Expected<void> backward(const Plan& plan, const BackwardTensors& tensors, const Workspace& workspace) const = 0;
};

// All backends, in order of priority.
int backend_count();
const Backend& backend_at(int index);

// Gives the plan the named backend, or with "auto" the first that serves it, and lets it prepare.
Expected<void> choose_backend(Plan& plan, std::string_view name);

}  // namespace iso
