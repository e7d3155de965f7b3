// A CUDA driver that only keeps books, for tests on machines without a GPU: fake_driver.cpp is built as a shared library
// that exports the functions of src/cuda/driver_functions.inc. A test opens the library itself, sets the state, and gives
// its file to Driver::open.
#pragma once

#include <string>
#include <vector>

#include "cuda/driver_abi.h"

namespace iso::cuda {

struct FakeDevice {
  std::string name = "Fake H200";
  i32 major = 9, minor = 0, num_multiprocessors = 132, max_shared_bytes = 232448;
};

struct FakeLaunch {
  LaunchConfig config;
  std::vector<LaunchAttribute> attributes;
  const void* kernel;
  const void* params;
  i32 device;  // of the current context
};

struct FakeTensorMap {
  i32 type, interleave, swizzle, l2_promotion, fill;
  const void* address;
  std::vector<u64> shape, stride_bytes;
  std::vector<u32> box, element_strides;
};

struct FakeDriver {
  // What the driver is like.
  i32 version = 13000;
  std::vector<FakeDevice> devices{1};
  std::string failing_call;  // the exported name of a function that returns failing_result
  Result failing_result = kInvalidValue;
  std::string load_log;  // what cuLibraryLoadData writes to its error log when it fails

  // What it was asked to do.
  i32 num_loads = 0, num_unloads = 0, num_retains = 0, num_releases = 0;
  std::vector<i32> function_loads;                    // per cuKernelGetFunction: the device of the current context
  std::vector<std::pair<i32, i32>> shared_bytes_set;  // device, bytes
  std::vector<FakeLaunch> launches;
  std::vector<FakeTensorMap> tensor_maps;
};

// Exported by the library under this name: its state, and the number of contexts on the calling thread's stack.
using FakeDriverFunction = FakeDriver& (*)();
inline constexpr const char* kFakeDriverSymbol = "iso_fake_driver";
using FakeContextDepthFunction = i32 (*)();
inline constexpr const char* kFakeContextDepthSymbol = "iso_fake_context_depth";

}  // namespace iso::cuda
