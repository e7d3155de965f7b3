#include "fake_driver/fake_driver.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#define ISO_FAKE extern "C" __attribute__((visibility("default")))

namespace iso::cuda {

// A context is one of these: the primary contexts of up to eight devices, by index.
struct ContextTag {};
// The text of the cubin, which is the name of its one kernel.
struct LibraryTag {
  std::string kernel;
};

namespace {

constexpr Result kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500;

FakeDriver state;
std::mutex mutex;
ContextTag contexts[8];
thread_local std::vector<Context> current;

bool fails(const char* call) { return state.failing_call == call; }
i32 current_device() { return current.empty() ? -1 : static_cast<i32>(current.back() - contexts); }

}  // namespace
}  // namespace iso::cuda

using namespace iso;
using namespace iso::cuda;

// The first lines of every function: one call at a time, and the failure that a test has asked for.
#define ISO_FAKE_CALL(symbol)  \
  std::lock_guard lock(mutex); \
  if (fails(#symbol)) return state.failing_result

ISO_FAKE FakeDriver& iso_fake_driver() { return state; }
ISO_FAKE i32 iso_fake_context_depth() { return static_cast<i32>(current.size()); }

ISO_FAKE Result cuInit(u32) {
  ISO_FAKE_CALL(cuInit);
  return kSuccess;
}

ISO_FAKE Result cuDriverGetVersion(i32* version) {
  *version = state.version;
  return kSuccess;
}

ISO_FAKE Result cuGetErrorName(Result error, const char** name) {
  if (error == 999) return kInvalidValue;
  *name = error == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_FAKE";
  return kSuccess;
}

ISO_FAKE Result cuGetErrorString(Result error, const char** text) {
  *text = error == kInvalidValue ? "invalid argument" : "a fake error";
  return kSuccess;
}

ISO_FAKE Result cuDeviceGetCount(i32* count) {
  ISO_FAKE_CALL(cuDeviceGetCount);
  *count = static_cast<i32>(state.devices.size());
  return kSuccess;
}

// Handles are not indices, so that a mix-up shows.
ISO_FAKE Result cuDeviceGet(DeviceHandle* device, i32 ordinal) {
  ISO_FAKE_CALL(cuDeviceGet);
  *device = 100 + ordinal;
  return kSuccess;
}

ISO_FAKE Result cuDeviceGetName(char* name, i32 size, DeviceHandle device) {
  ISO_FAKE_CALL(cuDeviceGetName);
  std::strncpy(name, state.devices.at(device - 100).name.c_str(), size - 1);
  return kSuccess;
}

ISO_FAKE Result cuDeviceGetAttribute(i32* value, i32 attribute, DeviceHandle device) {
  ISO_FAKE_CALL(cuDeviceGetAttribute);
  const FakeDevice& info = state.devices.at(device - 100);
  switch (attribute) {
    case kComputeCapabilityMajor: *value = info.major; return kSuccess;
    case kComputeCapabilityMinor: *value = info.minor; return kSuccess;
    case kMultiprocessorCount: *value = info.num_multiprocessors; return kSuccess;
    case kMaxSharedBytesOptIn: *value = info.max_shared_bytes; return kSuccess;
  }
  return kInvalidValue;
}

ISO_FAKE Result cuDevicePrimaryCtxRetain(Context* context, DeviceHandle device) {
  ISO_FAKE_CALL(cuDevicePrimaryCtxRetain);
  ++state.num_retains;
  *context = &contexts[device - 100];
  return kSuccess;
}

ISO_FAKE Result cuDevicePrimaryCtxRelease_v2(DeviceHandle) {
  ISO_FAKE_CALL(cuDevicePrimaryCtxRelease_v2);
  ++state.num_releases;
  return kSuccess;
}

ISO_FAKE Result cuCtxGetCurrent(Context* context) {
  ISO_FAKE_CALL(cuCtxGetCurrent);
  *context = current.empty() ? nullptr : current.back();
  return kSuccess;
}

ISO_FAKE Result cuCtxGetDevice(DeviceHandle* device) {
  ISO_FAKE_CALL(cuCtxGetDevice);
  if (current.empty()) return kInvalidContext;
  *device = 100 + current_device();
  return kSuccess;
}

ISO_FAKE Result cuCtxPushCurrent_v2(Context context) {
  ISO_FAKE_CALL(cuCtxPushCurrent_v2);
  current.push_back(context);
  return kSuccess;
}

ISO_FAKE Result cuCtxPopCurrent_v2(Context* context) {
  ISO_FAKE_CALL(cuCtxPopCurrent_v2);
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return kSuccess;
}

ISO_FAKE Result cuLibraryLoadData(Library* library, const void* code, i32* jit_options, void** jit_values,
                                  u32 num_jit_options, i32*, void**, u32) {
  std::lock_guard lock(mutex);
  if (fails("cuLibraryLoadData")) {
    for (u32 i = 0; i < num_jit_options; ++i)
      if (jit_options[i] == kJitErrorLog) std::strcpy(static_cast<char*>(jit_values[i]), state.load_log.c_str());
    return state.failing_result;
  }
  ++state.num_loads;
  *library = new LibraryTag{static_cast<const char*>(code)};
  return kSuccess;
}

ISO_FAKE Result cuLibraryUnload(Library library) {
  ISO_FAKE_CALL(cuLibraryUnload);
  ++state.num_unloads;
  delete library;
  return kSuccess;
}

ISO_FAKE Result cuLibraryGetKernel(Kernel* kernel, Library library, const char* name) {
  ISO_FAKE_CALL(cuLibraryGetKernel);
  if (library->kernel != name) return kNotFound;
  *kernel = reinterpret_cast<Kernel>(library);
  return kSuccess;
}

ISO_FAKE Result cuKernelGetFunction(Function* function, Kernel kernel) {
  ISO_FAKE_CALL(cuKernelGetFunction);
  if (current.empty()) return kInvalidContext;
  state.function_loads.push_back(current_device());
  *function = reinterpret_cast<Function>(kernel);
  return kSuccess;
}

ISO_FAKE Result cuKernelSetAttribute(i32 attribute, i32 value, Kernel, DeviceHandle device) {
  ISO_FAKE_CALL(cuKernelSetAttribute);
  if (attribute != kMaxDynamicSharedBytes) return kInvalidValue;
  state.shared_bytes_set.emplace_back(device - 100, value);
  return kSuccess;
}

ISO_FAKE Result cuLaunchKernelEx(const LaunchConfig* config, Function function, void** arguments, void** extra) {
  ISO_FAKE_CALL(cuLaunchKernelEx);
  if (current.empty()) return kInvalidContext;
  if (function == nullptr || extra != nullptr) return kInvalidHandle;
  state.launches.push_back({*config,
                            {config->attributes, config->attributes + config->num_attributes},
                            function,
                            arguments[0],
                            current_device()});
  return kSuccess;
}

ISO_FAKE Result cuTensorMapEncodeTiled(void*, i32 type, u32 rank, void* address, const u64* shape, const u64* stride_bytes,
                                       const u32* box, const u32* element_strides, i32 interleave, i32 swizzle,
                                       i32 l2_promotion, i32 fill) {
  ISO_FAKE_CALL(cuTensorMapEncodeTiled);
  state.tensor_maps.push_back({type,
                               interleave,
                               swizzle,
                               l2_promotion,
                               fill,
                               address,
                               {shape, shape + rank},
                               {stride_bytes, stride_bytes + rank - 1},
                               {box, box + rank},
                               {element_strides, element_strides + rank}});
  return kSuccess;
}
