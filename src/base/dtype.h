// Element types: names, sizes, and bit-exact conversion of bf16 and fp16 to and from float (round to nearest, ties to
// even; NaN stays NaN, overflow gives Inf). The same integer arithmetic serves host and device.
#pragma once

#include "base/compile.h"

namespace iso {

// Values equal isoflash_dtype in the C ABI (api/c_api.cpp asserts it).
enum class DType : i32 { f32 = 0, bf16 = 1, f16 = 2, f64 = 3, i32 = 4, i64 = 5 };
inline constexpr int kNumDTypes = 6;

struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};

inline namespace ISO_TARGET {

ISO_HOST_DEVICE constexpr int dtype_size(DType t) {
  return t == DType::bf16 || t == DType::f16 ? 2 : t == DType::f64 || t == DType::i64 ? 8 : 4;
}

ISO_HOST_DEVICE constexpr const char* dtype_name(DType t) {
  switch (t) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    case DType::f64: return "float64";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
  }
  return "unknown";
}

ISO_FN u32 float_bits(float x) { return __builtin_bit_cast(u32, x); }
ISO_FN float bits_float(u32 x) { return __builtin_bit_cast(float, x); }

ISO_FN float to_float(float x) { return x; }
ISO_FN float to_float(bf16 x) { return bits_float(static_cast<u32>(x.bits) << 16); }
ISO_FN float to_float(f16 x) {
  const u32 sign = static_cast<u32>(x.bits & 0x8000u) << 16;
  const u32 exponent = (x.bits >> 10) & 0x1fu;
  const u32 mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1fu) return bits_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return bits_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24 is exact in float.
  const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
  return bits_float(sign | float_bits(magnitude));
}

ISO_FN bf16 to_bf16(float x) {
  const u32 b = float_bits(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return {static_cast<u16>((b >> 16) | 0x40u)};
  return {static_cast<u16>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16)};
}

ISO_FN f16 to_f16(float x) {
  const u32 b = float_bits(x);
  const u16 sign = static_cast<u16>((b >> 16) & 0x8000u);
  const u32 a = b & 0x7fffffffu;
  if (a > 0x7f800000u) return {static_cast<u16>(sign | 0x7e00u | ((a >> 13) & 0x1ffu))};
  if (a >= 0x477ff000u) return {static_cast<u16>(sign | 0x7c00u)};  // rounds to 65536 or more
  if (a < 0x38800000u) {  // below the smallest normal: count units of 2^-24, rounded to even by the addition
    const float units = bits_float(a) + 0.5f;  // 0.5 has unit 2^-24 in its last mantissa place
    return {static_cast<u16>(sign | (float_bits(units) - float_bits(0.5f)))};
  }
  const u32 rounded = a + 0xfffu + ((a >> 13) & 1u);
  return {static_cast<u16>(sign | ((rounded - 0x38000000u) >> 13))};
}

template <class T>
ISO_FN T from_float(float x);
template <>
ISO_FN float from_float<float>(float x) {
  return x;
}
template <>
ISO_FN bf16 from_float<bf16>(float x) {
  return to_bf16(x);
}
template <>
ISO_FN f16 from_float<f16>(float x) {
  return to_f16(x);
}

}  // namespace ISO_TARGET
}  // namespace iso
