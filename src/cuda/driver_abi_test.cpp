// Our declarations against <cuda.h>. Built where the toolkit's headers are found; it is the compiler that checks.
#include "cuda/driver_abi.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "cuda/tensor_map.h"

namespace iso::cuda {
namespace {

static_assert(CUDA_SUCCESS == kSuccess && CUDA_ERROR_INVALID_VALUE == kInvalidValue &&
              CUDA_ERROR_NO_DEVICE == kNoDeviceResult);
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == kMultiprocessorCount);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == kComputeCapabilityMajor);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == kComputeCapabilityMinor);
static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == kMaxSharedBytesOptIn);
static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == kMaxDynamicSharedBytes);
static_assert(CU_JIT_INFO_LOG_BUFFER == kJitInfoLog && CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES == kJitInfoLogSize);
static_assert(CU_JIT_ERROR_LOG_BUFFER == kJitErrorLog && CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES == kJitErrorLogSize);
static_assert(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION == kClusterDimension);
static_assert(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == kProgrammaticStreamSerialization);
static_assert(CU_TENSOR_MAP_DATA_TYPE_FLOAT16 == kTensorMapF16 && CU_TENSOR_MAP_DATA_TYPE_FLOAT32 == kTensorMapF32);
static_assert(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 == kTensorMapBf16);
static_assert(CU_TENSOR_MAP_L2_PROMOTION_L2_256B == kTensorMapL2Bytes256);
static_assert(CU_TENSOR_MAP_SWIZZLE_32B == 1 && CU_TENSOR_MAP_SWIZZLE_64B == 2 && CU_TENSOR_MAP_SWIZZLE_128B == 3);

static_assert(sizeof(CUlaunchAttribute) == sizeof(LaunchAttribute));
static_assert(offsetof(CUlaunchAttribute, value) == offsetof(LaunchAttribute, bytes));
static_assert(sizeof(CUlaunchConfig) == sizeof(LaunchConfig));
static_assert(offsetof(CUlaunchConfig, blockDimX) == offsetof(LaunchConfig, block_x));
static_assert(offsetof(CUlaunchConfig, sharedMemBytes) == offsetof(LaunchConfig, shared_bytes));
static_assert(offsetof(CUlaunchConfig, hStream) == offsetof(LaunchConfig, stream));
static_assert(offsetof(CUlaunchConfig, attrs) == offsetof(LaunchConfig, attributes));
static_assert(offsetof(CUlaunchConfig, numAttrs) == offsetof(LaunchConfig, num_attributes));
static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));

// Equal once pointers are void* and enumerations and integers of one size are the same.
template <class T>
using Plain = std::conditional_t<
    std::is_pointer_v<T>, void*,
    std::conditional_t<std::is_enum_v<T>, i32,
                       std::make_signed_t<std::conditional_t<std::is_enum_v<T> || std::is_pointer_v<T>, i32, T>>>>;
template <class F>
struct Signature;
template <class R, class... Args>
struct Signature<R (*)(Args...)> {
  using Type = Plain<R> (*)(Plain<Args>...);
};

// cuda.h's macros give the same version suffixes (_v2) as the table, so the names agree.
#define ISO_DRIVER_FUNCTION(member, symbol, ...) \
  static_assert(std::is_same_v<Signature<decltype(&::symbol)>::Type, Signature<decltype(DriverTable::member)>::Type>);
#include "cuda/driver_functions.inc"
#undef ISO_DRIVER_FUNCTION

TEST(DriverAbi, EqualsCudaHeader) { SUCCEED() << "checked by the compiler, CUDA_VERSION " << CUDA_VERSION; }

}  // namespace
}  // namespace iso::cuda
