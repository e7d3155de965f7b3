// The one runner: a case, a mode, a target, a seed -> what is wrong. Truth comes from core/reference.h; the target is
// reached through the C ABI only.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "conformance/call.h"
#include "conformance/case.h"

namespace iso::conformance {

enum class Mode {
  fwd,          // out and lse within tolerance of the oracle
  grad,         // dq, dk, dv within tolerance of the oracle
  bounds,       // every element of every output written, nothing else touched, any subset of gradients
  determinism,  // bitwise the same again, for any number of threads, whatever the other candidates are
  isolation,    // what a row may not see, NaN and Inf included, changes not one bit of its results
};
inline constexpr std::array kModes = {Mode::fwd, Mode::grad, Mode::bounds, Mode::determinism, Mode::isolation};
inline constexpr const char* kModeNames[] = {"fwd", "grad", "bounds", "determinism", "isolation"};
inline const char* mode_name(Mode mode) { return kModeNames[static_cast<int>(mode)]; }

struct Outcome {
  std::vector<std::string> failures;
  std::string unsupported;  // why the backend does not serve the case; not a failure
};

Outcome run_case(const Case& c, Mode mode, const Target& target, u64 seed);

// The command that runs this again.
std::string rerun_line(const Case& c, Mode mode, const Target& target, u64 seed);

}  // namespace iso::conformance
