// Moving rows between tensors (any dtype, any strides) and the float32 tiles of the kernels.
#pragma once

#include ISO_CPU_SIMD

#include "base/dtype.h"
#include "core/problem.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// Element [batch, row, head, 0] of a (batch, row, head, dim) or packed (row, head, dim) tensor.
template <class T>
inline T* row_pointer(const Tensor& t, i64 batch, i64 row, i64 head) {
  const i64* s = t.strides;
  const i64 offset = t.rank == 4 ? batch * s[0] + row * s[1] + head * s[2] : row * s[0] + head * s[1];
  return static_cast<T*>(t.data) + offset;
}
inline i64 last_stride(const Tensor& t) { return t.strides[t.rank - 1]; }

// Element of lse: (batch, head, row) or packed (head, row).
inline float* lse_pointer(const Tensor& t, i64 batch, i64 head, i64 row) {
  const i64* s = t.strides;
  const i64 offset = t.rank == 3 ? batch * s[0] + head * s[1] + row * s[2] : head * s[0] + row * s[1];
  return static_cast<float*>(t.data) + offset;
}

HWY_INLINE Vec load_floats(const float* p) { return hn::LoadU(kFloat, p); }
HWY_INLINE Vec load_floats(const bf16* p) {
  const hn::Rebind<u16, FloatTag> narrow;
  const auto bits = hn::PromoteTo(UintTag(), hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(kFloat, hn::ShiftLeft<16>(bits));
}
// Without conversion instructions Highway computes fp16 conversions that know no NaN and no infinity.
constexpr bool kHalfInstructions =
    HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SSSE3 && HWY_TARGET != HWY_SSE4;

HWY_INLINE Vec load_floats(const f16* p) {
  if constexpr (!kHalfInstructions) {
    float floats[kLanes];
    for (i64 k = 0; k < kLanes; ++k) floats[k] = to_float(p[k]);
    return hn::LoadU(kFloat, floats);
  }
  const hn::Rebind<hwy::float16_t, FloatTag> narrow;
  return hn::PromoteTo(kFloat, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(p)));
}

// Reads n elements with the given stride into dst[0, n).
template <class T>
inline void read_row(const T* src, i64 stride, i64 n, float* dst) {
  i64 k = 0;
  if (stride == 1)
    for (; k + kLanes <= n; k += kLanes) hn::StoreU(load_floats(src + k), kFloat, dst + k);
  for (; k < n; ++k) dst[k] = to_float(src[k * stride]);
}

HWY_INLINE void store_floats(Vec v, float* p) { hn::StoreU(v, kFloat, p); }
HWY_INLINE void store_floats(Vec v, bf16* p) {
  // Round to nearest even; NaN keeps its upper bits and is made quiet (to_bf16 in base/dtype.h).
  const UintTag du;
  const auto b = hn::BitCast(du, v);
  const auto lsb = hn::And(hn::ShiftRight<16>(b), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(b, hn::Set(du, 0x7fffu)), lsb);
  const auto quiet = hn::Or(b, hn::Set(du, 0x400000u));
  const auto bits = hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded));
  const hn::Rebind<u16, FloatTag> narrow;
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(kInt, bits)), narrow, reinterpret_cast<uint16_t*>(p));
}

HWY_INLINE void store_floats(Vec v, f16* p) {
  if constexpr (!kHalfInstructions) {
    float floats[kLanes];
    hn::StoreU(v, kFloat, floats);
    for (i64 k = 0; k < kLanes; ++k) p[k] = to_f16(floats[k]);
    return;
  }
  const hn::Rebind<hwy::float16_t, FloatTag> narrow;
  hn::StoreU(hn::DemoteTo(narrow, v), narrow, reinterpret_cast<hwy::float16_t*>(p));
}

// Writes n floats times `factor` with the given stride.
template <class T>
inline void write_row(const float* src, i64 n, float factor, T* dst, i64 stride) {
  i64 k = 0;
  if (stride == 1)
    for (; k + kLanes <= n; k += kLanes)
      store_floats(hn::Mul(hn::LoadU(kFloat, src + k), hn::Set(kFloat, factor)), dst + k);
  for (; k < n; ++k) dst[k * stride] = from_float<T>(src[k] * factor);
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
