// Arithmetic. The approximations of the chip differ from these in the last bits.
#pragma once

#include <cmath>

namespace iso::instr {

inline u32 as_u32(float x) { return float_bits(x); }
inline float as_f32(u32 x) { return bits_float(x); }
inline float ex2_approx_ftz_f32(float x) { return std::exp2(x); }
inline float lg2_approx_ftz_f32(float x) { return std::log2(x); }
inline float rcp_approx_ftz_f32(float x) { return 1.0f / x; }
inline float tanh_approx_f32(float x) { return std::tanh(x); }
inline float fma_rn_f32(float a, float b, float c) { return std::fma(a, b, c); }
// Of NaN and a number they give the number, like max.f32 and min.f32.
inline float max_f32(float a, float b) { return std::fmax(a, b); }
inline float min_f32(float a, float b) { return std::fmin(a, b); }
inline u32 cvt_rn_bf16x2_f32(float high, float low) {
  return static_cast<u32>(to_bf16(high).bits) << 16 | to_bf16(low).bits;
}
inline u32 cvt_rn_f16x2_f32(float high, float low) { return static_cast<u32>(to_f16(high).bits) << 16 | to_f16(low).bits; }

}  // namespace iso::instr
