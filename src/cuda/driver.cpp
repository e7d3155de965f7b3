#include "cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>

namespace iso::cuda {
namespace {

constexpr const char* kNeededVersion = "12.0";

std::string version_text(i32 version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

struct CloseLibrary {
  void operator()(void* handle) const { dlclose(handle); }
};

tl::unexpected<Error> no_device() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return raise(
      errors::NoDevice{.visible_devices = visible == nullptr ? std::string("not set") : fmt::format("\"{}\"", visible)});
}

}  // namespace

std::string DeviceInfo::text() const { return fmt::format("{} \"{}\"", index, name); }

struct Driver::State {
  std::unique_ptr<void, CloseLibrary> handle;
  DriverTable table;
  std::string version;
  i32 device_count = 0;
  std::mutex mutex;
  std::unordered_map<DeviceHandle, Context> primary_contexts;

  ~State() {
    for (const auto& [device, context] : primary_contexts) table.primary_context_release(device);
  }
};

Driver::Driver(std::unique_ptr<State> state) : state_(std::move(state)) {}
Driver::~Driver() = default;
Driver::Driver(Driver&&) noexcept = default;
Driver& Driver::operator=(Driver&&) noexcept = default;

Expected<Driver> Driver::open(const std::string& library) {
  auto state = std::make_unique<State>();
  state->handle.reset(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (state->handle == nullptr) return raise(errors::DriverMissing{.library = library, .reason = dlerror()});

  const char* missing = nullptr;
  const auto find_function = [&]<class F>(F& function, const char* symbol) {
    function = reinterpret_cast<F>(dlsym(state->handle.get(), symbol));
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
#define ISO_DRIVER_FUNCTION(member, symbol, ...) find_function(state->table.member, #symbol);
#include "cuda/driver_functions.inc"
#undef ISO_DRIVER_FUNCTION
  i32 version = 0;
  if (state->table.driver_get_version != nullptr) state->table.driver_get_version(&version);
  state->version = version_text(version);
  if (missing != nullptr)
    return raise(
        errors::DriverTooOld{.library = library, .version = state->version, .needed = kNeededVersion, .missing = missing});

  Driver driver(std::move(state));
  const Result initialised = driver->init(0);
  if (initialised == kNoDeviceResult) return no_device();
  if (auto ok = driver.check(initialised, "cuInit"); !ok) return tl::unexpected(ok.error());
  if (auto ok = driver.check(driver->device_get_count(&driver.state_->device_count), "cuDeviceGetCount"); !ok)
    return tl::unexpected(ok.error());
  if (driver.device_count() == 0) return no_device();
  return driver;
}

const DriverTable* Driver::operator->() const { return &state_->table; }
void* Driver::find(const char* symbol) const { return dlsym(state_->handle.get(), symbol); }
const std::string& Driver::version() const { return state_->version; }
i32 Driver::device_count() const { return state_->device_count; }

Expected<DeviceInfo> Driver::device(i32 index) const {
  if (index < 0 || index >= device_count()) return raise(errors::DeviceIndex{.got = index, .count = device_count()});
  DeviceInfo info{};
  info.index = index;
  const DriverTable& table = state_->table;
  if (auto ok = check(table.device_get(&info.handle, index), "cuDeviceGet"); !ok) return tl::unexpected(ok.error());
  char name[256] = "";
  if (auto ok = check(table.device_get_name(name, sizeof name, info.handle), "cuDeviceGetName"); !ok)
    return tl::unexpected(ok.error());
  info.name = name;
  const std::pair<i32, i32*> attributes[] = {{kComputeCapabilityMajor, &info.major},
                                             {kComputeCapabilityMinor, &info.minor},
                                             {kMultiprocessorCount, &info.num_multiprocessors},
                                             {kMaxSharedBytesOptIn, &info.max_shared_bytes}};
  for (const auto& [attribute, value] : attributes)
    if (auto ok = check(table.device_get_attribute(value, attribute, info.handle), "cuDeviceGetAttribute"); !ok)
      return tl::unexpected(ok.error());
  return info;
}

Expected<Context> Driver::primary_context(const DeviceInfo& device) const {
  std::lock_guard lock(state_->mutex);
  Context& context = state_->primary_contexts[device.handle];
  if (context == nullptr) {
    if (auto ok = check(state_->table.primary_context_retain(&context, device.handle), "cuDevicePrimaryCtxRetain"); !ok) {
      state_->primary_contexts.erase(device.handle);
      return tl::unexpected(ok.error());
    }
  }
  return context;
}

std::string Driver::error_text(Result result) const {
  const char *name = nullptr, *text = nullptr;
  if (state_->table.get_error_name(result, &name) != kSuccess || name == nullptr) return fmt::format("error {}", result);
  if (state_->table.get_error_string(result, &text) != kSuccess || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

Expected<void> Driver::check(Result result, std::string_view call) const {
  if (result == kSuccess) return {};
  return raise(errors::DriverCall{.call = call, .error = error_text(result)});
}

const Expected<Driver>& driver() {
  // Never destroyed: the driver shuts itself down at exit, in an order that nobody controls.
  static const auto* const opened = new Expected<Driver>(Driver::open());
  return *opened;
}

Expected<Architecture> architecture_of(const DeviceInfo& device) {
  if (const Architecture* architecture = iso::architecture_of(device.major, device.minor)) return *architecture;
  return raise(errors::ArchitectureUnsupported{.device = device.text(),
                                               .capability = fmt::format("{}.{}", device.major, device.minor),
                                               .supported = "9.0 (Hopper) and 10.x (Blackwell)"});
}

Expected<ScopedContext> ScopedContext::enter(const Driver& driver, const DeviceInfo& device) {
  Context current = nullptr;
  if (auto ok = driver.check(driver->context_get_current(&current), "cuCtxGetCurrent"); !ok)
    return tl::unexpected(ok.error());
  DeviceHandle handle = -1;
  if (current != nullptr && driver->context_get_device(&handle) == kSuccess && handle == device.handle)
    return ScopedContext(nullptr);
  const Expected<Context> primary = driver.primary_context(device);
  if (!primary) return tl::unexpected(primary.error());
  if (auto ok = driver.check(driver->context_push(*primary), "cuCtxPushCurrent"); !ok) return tl::unexpected(ok.error());
  return ScopedContext(&driver);
}

ScopedContext::~ScopedContext() {
  Context popped = nullptr;
  if (pushed_on_ != nullptr) (*pushed_on_)->context_pop(&popped);
}

}  // namespace iso::cuda
