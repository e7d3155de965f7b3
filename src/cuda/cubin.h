// Kernels by instance: each cubin is given to the driver once per process and loaded into each context that asks for it.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "cuda/driver.h"
#include "instances/cubins.h"

namespace iso::cuda {

struct LoadedKernel {
  const Instance* instance;
  Kernel handle;  // valid in every context that the kernel was loaded for
};

// Thread-safe. Lives no longer than its driver.
class KernelCache {
 public:
  using FindCubin = const Cubin* (*)(std::string_view symbol);

  explicit KernelCache(const Driver& driver, FindCubin find = find_cubin) : driver_(driver), find_(find) {}
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;

  // The instance, ready to be launched in the device's context (see ScopedContext): nothing is left to be loaded at the
  // first launch, which may be part of a graph being captured. Called while a plan is made. Errors:
  // ARCHITECTURE_UNSUPPORTED, CUBIN_MISSING, CUBIN_LOAD, DRIVER_CALL.
  Expected<LoadedKernel> load(const Instance& instance, const DeviceInfo& device);

 private:
  // A cubin has one kernel.
  struct Loaded {
    Library library;
    Kernel kernel;
  };
  Expected<Loaded> find_or_load(const Instance& instance, const DeviceInfo& device);

  const Driver& driver_;
  const FindCubin find_;
  std::mutex mutex_;
  std::unordered_map<std::string, Loaded> loaded_;
};

// The cache of the process's driver; only after driver() has succeeded.
KernelCache& kernel_cache();

}  // namespace iso::cuda
