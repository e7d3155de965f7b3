#include "machine.h"

#include <fstream>

#include <dlfcn.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace iso::tool {
namespace {

// The value after "key ... :" in a /proc file; empty if there is none.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? std::string() : line.substr(value);
  }
  return {};
}

std::int64_t meminfo_bytes(const std::string& key) {
  const std::string value = proc_value("/proc/meminfo", key);  // "24684092 kB"
  return value.empty() ? 0 : std::stoll(value) * 1024;
}

// The few functions of the CUDA driver API that doctor asks, with the types of its documentation.
struct DriverApi {
  int (*init)(unsigned flags) = nullptr;
  int (*driver_version)(int* version) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_name)(char* name, int size, int device) = nullptr;
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;
  int (*device_memory)(std::size_t* bytes, int device) = nullptr;
};
constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

template <class Function>
bool load(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

bool load_all(void* library, DriverApi& api) {
  return load(library, "cuInit", api.init) && load(library, "cuDriverGetVersion", api.driver_version) &&
         load(library, "cuDeviceGetCount", api.device_count) && load(library, "cuDeviceGet", api.device_get) &&
         load(library, "cuDeviceGetName", api.device_name) && load(library, "cuDeviceGetAttribute", api.device_attribute) &&
         load(library, "cuDeviceTotalMem_v2", api.device_memory);
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu_model = proc_value("/proc/cpuinfo", "model name");
  if (machine.cpu_model.empty()) machine.cpu_model = "unknown";
  machine.cores_online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t usable;
  machine.cores_usable = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : machine.cores_online;
  machine.memory_bytes = meminfo_bytes("MemTotal");
  machine.memory_available_bytes = meminfo_bytes("MemAvailable");
  utsname system{};
  if (uname(&system) == 0) machine.system = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  return machine;
}

std::optional<CudaDriver> cuda_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded: the driver does not like to be unloaded
  if (!library) return std::nullopt;
  CudaDriver driver;
  DriverApi api;
  if (!load_all(library, api)) {
    driver.problem = "libcuda.so.1 lacks functions that every driver since CUDA 4 has";
    return driver;
  }
  api.driver_version(&driver.version);
  int count = 0;
  if (const int code = api.init(0); code != 0 || api.device_count(&count) != 0) {
    driver.problem = fmt::format("cuInit returned {}: the driver finds no usable GPU", code);
    return driver;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    char name[256] = "unknown";
    std::size_t bytes = 0;
    Gpu gpu;
    if (api.device_get(&device, ordinal) != 0) continue;
    api.device_name(name, sizeof name, device);
    api.device_attribute(&gpu.compute_major, kComputeCapabilityMajor, device);
    api.device_attribute(&gpu.compute_minor, kComputeCapabilityMinor, device);
    api.device_memory(&bytes, device);
    gpu.name = name;
    gpu.memory_bytes = static_cast<std::int64_t>(bytes);
    driver.gpus.push_back(gpu);
  }
  if (driver.gpus.empty()) driver.problem = "the driver lists no GPU";
  return driver;
}

}  // namespace iso::tool
