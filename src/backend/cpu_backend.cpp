#include "backend/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu/cpu.h"

namespace iso {
namespace {

std::string level_names(bool available_only) {
  std::string names;
  for (const cpu::Level& level : cpu::levels())
    if (!available_only || level.available()) names += fmt::format("{}{}", names.empty() ? "" : ", ", level.name);
  return names;
}

class CpuBackend final : public Backend {
 public:
  const char* name() const override { return "cpu"; }

  std::string why_not(const Plan& plan) const override {
    if (plan.problem.device.type != DeviceType::cpu)
      return "the tensors are in CUDA memory and this backend reads host memory; copy them to the host";
    return {};
  }

  Expected<void> prepare(Plan& plan) const override {
    const char* rejected = nullptr;
    cpu::level_in_use(&rejected);
    if (rejected != nullptr) {
      const auto levels = cpu::levels();
      const bool known = std::any_of(levels.begin(), levels.end(),
                                     [&](const cpu::Level& x) { return std::string_view(x.name) == rejected; });
      if (known) return raise(errors::CpuLevelUnavailable{.got = rejected, .available = level_names(true)});
      return raise(errors::CpuLevelUnknown{.got = rejected, .known = level_names(false)});
    }
    if (plan.num_threads == 0) plan.num_threads = cpu::available_cores();
    if (plan.num_splits == 0) plan.num_splits = 1;
    cpu::prepare(plan);
    return {};
  }

  Expected<void> forward(const Plan& plan, const ForwardTensors& tensors, const Workspace& workspace) const override {
    cpu::forward(plan, tensors, workspace.data);
    return {};
  }

  Expected<void> backward(const Plan& plan, const BackwardTensors& tensors, const Workspace& workspace) const override {
    cpu::backward(plan, tensors, workspace.data);
    return {};
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

int cpu_level_count() { return static_cast<int>(cpu::levels().size()); }
const char* cpu_level_name(int index) { return cpu::levels()[static_cast<std::size_t>(index)].name; }
bool cpu_level_available(int index) { return cpu::levels()[static_cast<std::size_t>(index)].available(); }
const char* cpu_level_in_use() { return cpu::level_in_use().name; }

}  // namespace iso
