// Arithmetic. PTX manual: "Floating Point Instructions", "cvt".
#pragma once

namespace iso::instr {

ISO_DEVICE u32 as_u32(float x) { return __float_as_uint(x); }
ISO_DEVICE float as_f32(u32 x) { return __uint_as_float(x); }
ISO_DEVICE float ex2_approx_ftz_f32(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ISO_DEVICE float lg2_approx_ftz_f32(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ISO_DEVICE float rcp_approx_ftz_f32(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ISO_DEVICE float tanh_approx_f32(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ISO_DEVICE float fma_rn_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Of NaN and a number they give the number.
ISO_DEVICE float max_f32(float a, float b) {
  float c;
  asm("max.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
ISO_DEVICE float min_f32(float a, float b) {
  float c;
  asm("min.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
ISO_DEVICE u32 cvt_rn_bf16x2_f32(float high, float low) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
ISO_DEVICE u32 cvt_rn_f16x2_f32(float high, float low) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace iso::instr
