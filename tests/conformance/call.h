// One case through the C ABI and nothing else: the plan, and its calls on the case's tensors.
#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "conformance/tensors.h"
#include "isoflash/isoflash.h"

namespace iso::conformance {

// What is to be tested.
struct Target {
  std::string backend = "cpu";
  std::string level;  // CPU level to force; empty: the library's own choice
};

// Why a call did not happen.
struct Refusal {
  bool unsupported = false;  // the backend says it does not serve the case; else the case was refused or failed
  std::string message;
};

// Which gradients to ask for.
struct Wanted {
  bool dq = true, dk = true, dv = true, dsink = true, dbias = true;
};

class Call {
 public:
  static tl::expected<Call, Refusal> prepare(const Case& c, const CaseArrays& arrays, const CaseTensors& tensors,
                                             const Target& target, int num_threads);

  // Empty, or the library's error message. The workspace is filled with NaN before the call; writes outside it and
  // inputs that changed are errors too.
  std::string forward(const CaseTensors& tensors) const;
  std::string backward(const CaseTensors& tensors, Wanted wanted = {}) const;

  std::string kernel() const { return isoflash_plan_kernel(plan_.get()); }
  i64 visible_pairs() const { return isoflash_plan_visible_pairs(plan_.get()); }

 private:
  struct Destroy {
    void operator()(isoflash_plan* plan) const { isoflash_plan_destroy(plan); }
    void operator()(isoflash_error* error) const { isoflash_error_destroy(error); }
  };
  explicit Call(isoflash_plan* plan) : plan_(plan) {}
  std::unique_ptr<isoflash_plan, Destroy> plan_;
};

// The level in use first, as "" (the library's own choice), then the others that this machine runs.
std::vector<std::string> runnable_levels();

// True if this machine can run the CPU level of that name.
bool level_available(const std::string& level);

}  // namespace iso::conformance
