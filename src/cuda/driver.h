// The CUDA driver, opened at run time: libcuda.so.1 by dlopen, so that one library serves machines with and without GPUs
// and needs neither the CUDA runtime nor the toolkit.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cuda/driver_abi.h"
#include "errors/error.h"
#include "instances/instances.h"

namespace iso::cuda {

struct DriverTable {
#define ISO_DRIVER_FUNCTION(member, symbol, ...) Result (*member)(__VA_ARGS__) = nullptr;
#include "cuda/driver_functions.inc"
#undef ISO_DRIVER_FUNCTION
};

struct DeviceInfo {
  i32 index;
  DeviceHandle handle;
  std::string name;
  i32 major, minor;  // compute capability
  i32 num_multiprocessors, max_shared_bytes;

  std::string text() const;  // `0 "NVIDIA H200"`
};

class Driver {
 public:
  // Opens the driver and initialises it: errors DRIVER_MISSING, DRIVER_TOO_OLD, NO_DEVICE, DRIVER_CALL.
  static Expected<Driver> open(const std::string& library = "libcuda.so.1");
  ~Driver();
  Driver(Driver&&) noexcept;
  Driver& operator=(Driver&&) noexcept;

  const DriverTable* operator->() const;
  // Any function of the driver; nullptr if it has none of that name.
  void* find(const char* symbol) const;

  const std::string& version() const;  // of CUDA, e.g. "13.0"
  i32 device_count() const;
  Expected<DeviceInfo> device(i32 index) const;

  // The primary context, which CUDA's runtime and the frameworks use. Stays retained until the driver is closed, because
  // kernels and memory of plans live in it.
  Expected<Context> primary_context(const DeviceInfo& device) const;

  // `CUDA_ERROR_INVALID_VALUE (invalid argument)`
  std::string error_text(Result result) const;
  // Success, or DRIVER_CALL.
  Expected<void> check(Result result, std::string_view call) const;

 private:
  struct State;
  explicit Driver(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The process's driver, opened at the first call and never closed; the error of that call if it failed.
const Expected<Driver>& driver();

// The architecture whose kernels run on the device, or ARCHITECTURE_UNSUPPORTED.
Expected<Architecture> architecture_of(const DeviceInfo& device);

// While it lives, the calling thread's current context is one of `device`: the one that was current if it is of that
// device, else the primary one.
class ScopedContext {
 public:
  static Expected<ScopedContext> enter(const Driver& driver, const DeviceInfo& device);
  ~ScopedContext();
  ScopedContext(ScopedContext&& other) noexcept : pushed_on_(std::exchange(other.pushed_on_, nullptr)) {}
  ScopedContext& operator=(ScopedContext&&) = delete;

 private:
  explicit ScopedContext(const Driver* pushed_on) : pushed_on_(pushed_on) {}
  const Driver* pushed_on_;  // nullptr: nothing to undo
};

}  // namespace iso::cuda
