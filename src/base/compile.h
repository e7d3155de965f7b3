// The compiler switch: the one place (with instr/instr.h) that asks which compiler is at work.
//
// Everything under base/ and core/ is compiled several times with different flags: into the host library, once per
// CPU level, into the emulator and into device code. Equal inline functions in different translation units would be
// merged by the linker, so an AVX-512 copy could end up in a baseline caller. ISO_TARGET names an inline namespace
// that keeps the copies apart; the build sets it per target (cpu_scalar, cpu_avx2, device, ...). Functions live inside
// it; plain data types that cross from one target to another live in namespace iso itself and have no member functions.
#pragma once

#ifndef ISO_TARGET
#define ISO_TARGET host
#endif

#if defined(__CUDACC__)
#define ISO_HOST_DEVICE __host__ __device__
#define ISO_INLINE __forceinline__
#else
#define ISO_HOST_DEVICE
#define ISO_INLINE inline __attribute__((always_inline))
#endif

// `ISO_FN` marks every function of base/ and core/ that kernels may call.
#define ISO_FN ISO_HOST_DEVICE inline

namespace iso {

// NVRTC has no <cstdint>; kernels use these names only.
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

static_assert(sizeof(i32) == 4 && sizeof(i64) == 8 && sizeof(u16) == 2);

}  // namespace iso
