#include "cuda/cubin.h"

#include <fmt/format.h>

#include <array>

namespace iso::cuda {
namespace {

// Above this a kernel must ask for its dynamic shared memory, device by device.
constexpr i32 kSharedBytesWithoutAsking = 48 * 1024;
constexpr std::size_t kLogBytes = 4096;

// The two logs that the driver may write while loading, as one line.
class LoadLog {
 public:
  std::array<i32, 4> options = {kJitInfoLog, kJitInfoLogSize, kJitErrorLog, kJitErrorLogSize};
  std::array<void*, 4> values = {info_, reinterpret_cast<void*>(kLogBytes), error_, reinterpret_cast<void*>(kLogBytes)};

  std::string text() const {
    std::string all = fmt::format("{} {}", error_, info_);
    for (char& c : all)
      if (c == '\n' || c == '\r') c = ' ';
    while (!all.empty() && all.back() == ' ') all.pop_back();
    while (!all.empty() && all.front() == ' ') all.erase(0, 1);
    return all.empty() ? "empty" : all;
  }

 private:
  char info_[kLogBytes] = "", error_[kLogBytes] = "";
};

}  // namespace

KernelCache::~KernelCache() {
  for (const auto& [symbol, loaded] : loaded_) driver_->library_unload(loaded.library);
}

Expected<KernelCache::Loaded> KernelCache::find_or_load(const Instance& instance, const DeviceInfo& device) {
  if (const auto at = loaded_.find(instance.symbol); at != loaded_.end()) return at->second;
  const Cubin* cubin = find_(instance.symbol);
  if (cubin == nullptr) return raise(errors::CubinMissing{.kernel = instance.symbol, .carried = embedded_cubins().size()});

  LoadLog log;
  Loaded loaded{};
  Result result = driver_->library_load_data(&loaded.library, cubin->begin, log.options.data(), log.values.data(),
                                             static_cast<u32>(log.options.size()), nullptr, nullptr, 0);
  if (result == kSuccess) {
    result = driver_->library_get_kernel(&loaded.kernel, loaded.library, instance.symbol);
    if (result != kSuccess) driver_->library_unload(loaded.library);
  }
  if (result != kSuccess)
    return raise(errors::CubinLoad{.kernel = instance.symbol,
                                   .device = device.text(),
                                   .error = driver_.error_text(result),
                                   .driver = driver_.version(),
                                   .compiler = cubin_compiler(),
                                   .log = log.text()});
  loaded_.emplace(instance.symbol, loaded);
  return loaded;
}

Expected<LoadedKernel> KernelCache::load(const Instance& instance, const DeviceInfo& device) {
  const Expected<Architecture> architecture = architecture_of(device);
  if (!architecture) return tl::unexpected(architecture.error());
  if (*architecture != instance.architecture)
    return raise(errors::ArchitectureUnsupported{.device = device.text(),
                                                 .capability = fmt::format("{}.{}", device.major, device.minor),
                                                 .supported = architecture_name(instance.architecture)});
  const Expected<ScopedContext> context = ScopedContext::enter(driver_, device);
  if (!context) return tl::unexpected(context.error());

  std::lock_guard lock(mutex_);
  const Expected<Loaded> loaded = find_or_load(instance, device);
  if (!loaded) return tl::unexpected(loaded.error());
  Result result = kSuccess;
  if (instance.shared_bytes > kSharedBytesWithoutAsking)
    result = driver_->kernel_set_attribute(kMaxDynamicSharedBytes, instance.shared_bytes, loaded->kernel, device.handle);
  // Loads the code into the current context, which the driver otherwise puts off until the first launch.
  Function function = nullptr;
  if (result == kSuccess) result = driver_->kernel_get_function(&function, loaded->kernel);
  if (result != kSuccess)
    return raise(errors::CubinLoad{.kernel = instance.symbol,
                                   .device = device.text(),
                                   .error = driver_.error_text(result),
                                   .driver = driver_.version(),
                                   .compiler = cubin_compiler(),
                                   .log = "none"});
  return LoadedKernel{&instance, loaded->kernel};
}

KernelCache& kernel_cache() {
  static auto* const cache = new KernelCache(*driver());  // never destroyed, like the driver
  return *cache;
}

}  // namespace iso::cuda
