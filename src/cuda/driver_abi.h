// The part of the CUDA driver's binary interface that isoflash uses, declared here so that building needs no toolkit.
// Values and layouts are those of the public driver API; driver_abi_test.cpp compares them with <cuda.h> where it is found.
#pragma once

#include <cstddef>

#include "base/compile.h"

namespace iso::cuda {

using Result = i32;
using DeviceHandle = i32;
using Context = struct ContextTag*;
using Library = struct LibraryTag*;
using Kernel = struct KernelTag*;  // of a library, for any context; may be launched like a Function
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;

inline constexpr Result kSuccess = 0, kInvalidValue = 1, kNoDeviceResult = 100;

// CUdevice_attribute
inline constexpr i32 kMultiprocessorCount = 16, kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76,
                     kMaxSharedBytesOptIn = 97;
// CUfunction_attribute
inline constexpr i32 kMaxDynamicSharedBytes = 8;
// CUjit_option
inline constexpr i32 kJitInfoLog = 3, kJitInfoLogSize = 4, kJitErrorLog = 5, kJitErrorLogSize = 6;

// CUlaunchAttribute
inline constexpr i32 kClusterDimension = 4, kProgrammaticStreamSerialization = 6;
struct LaunchAttribute {
  i32 id;
  i32 unused;
  union {
    char bytes[64];
    struct {
      u32 x, y, z;
    } cluster;
    i32 flag;
  };
};

// CUlaunchConfig
struct LaunchConfig {
  u32 grid_x, grid_y, grid_z;
  u32 block_x, block_y, block_z;
  u32 shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  u32 num_attributes;
};

// CUtensorMapDataType, CUtensorMapL2promotion
inline constexpr i32 kTensorMapF16 = 6, kTensorMapF32 = 7, kTensorMapBf16 = 9;
inline constexpr i32 kTensorMapL2Bytes256 = 3;

}  // namespace iso::cuda
