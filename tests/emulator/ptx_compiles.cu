// Every instruction of signatures.inc, every wgmma and the test kernels, compiled to machine code for sm_90a: an operand or
// modifier that ptxas does not know is an error here, not when the first kernel uses it. Nothing of it runs.
#include "instr/instr.h"
#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/cp_async.h"
#include "kernels/gemm.h"
#include "kernels/multicast.h"
#include "kernels/ordered_sum.h"

namespace iso::test {

// An argument made from values that the compiler does not know.
template <class T>
struct Argument {
  T value;
  ISO_DEVICE explicit Argument(const u64* data) : value(static_cast<T>(data[instr::tid_x()])) {}
  ISO_DEVICE T get() { return value; }
};
template <class T>
struct Argument<T*> {
  T* value;
  ISO_DEVICE explicit Argument(const u64* data) : value(reinterpret_cast<T*>(data[instr::tid_x()])) {}
  ISO_DEVICE T* get() { return value; }
};
template <class T, int kCount>
struct Argument<T (&)[kCount]> {
  u32 value[kCount];
  ISO_DEVICE explicit Argument(const u64* data) {
    for (int i = 0; i < kCount; i++) value[i] = static_cast<u32>(data[i]);
  }
  ISO_DEVICE T (&get())[kCount] { return value; }
};
template <>
struct Argument<instr::U32x2> {
  const u64* data;
  ISO_DEVICE explicit Argument(const u64* d) : data(d) {}
  ISO_DEVICE instr::U32x2 get() { return {static_cast<u32>(data[0]), static_cast<u32>(data[1])}; }
};
template <>
struct Argument<instr::U32x4> {
  const u64* data;
  ISO_DEVICE explicit Argument(const u64* d) : data(d) {}
  ISO_DEVICE instr::U32x4 get() {
    return {static_cast<u32>(data[0]), static_cast<u32>(data[1]), static_cast<u32>(data[2]), static_cast<u32>(data[3])};
  }
};
template <int N>
struct Argument<instr::WgmmaAccumulator<N>&> {
  instr::WgmmaAccumulator<N> value;
  ISO_DEVICE explicit Argument(const u64*) {}
  ISO_DEVICE instr::WgmmaAccumulator<N>& get() { return value; }
};
template <>
struct Argument<instr::WgmmaFragmentA&> {
  instr::WgmmaFragmentA value;
  ISO_DEVICE explicit Argument(const u64*) {}
  ISO_DEVICE instr::WgmmaFragmentA& get() { return value; }
};

template <class T>
ISO_DEVICE void keep(u64* out, const T& value) {
  *reinterpret_cast<volatile T*>(out) = value;
}
template <>
ISO_DEVICE void keep(u64* out, const instr::U32x2& value) {
  *out = value.x + value.y;
}
template <>
ISO_DEVICE void keep(u64* out, const instr::U32x4& value) {
  *out = value.x + value.y + value.z + value.w;
}

template <class Function>
struct Exercise;
template <class R, class... A>
struct Exercise<R(A...)> {
  template <class F>
  ISO_DEVICE static void run(F f, u64* data) {
    keep(data, f(Argument<A>(data).get()...));
  }
};
template <class... A>
struct Exercise<void(A...)> {
  template <class F>
  ISO_DEVICE static void run(F f, u64* data) {
    f(Argument<A>(data).get()...);
  }
};

#undef ISO_INSTRUCTION
#undef ISO_FUNCTION
#define ISO_INSTRUCTION(result, arguments, ...) \
  Exercise<result arguments>::run([](auto&&... a) -> result { return __VA_ARGS__(a...); }, data);
#define ISO_FUNCTION(result, arguments, ...) ISO_INSTRUCTION(result, arguments, __VA_ARGS__)

extern "C" __global__ void __launch_bounds__(128) every_instruction(u64* data) {
  using namespace instr;
#include "instr/signatures.inc"
}

template <class T, instr::Major kA, instr::Major kB, int N>
ISO_DEVICE void every_wgmma(u64 desc, bool scale_d, float* out) {
  using namespace instr;
  WgmmaAccumulator<N> d;
  WgmmaFragmentA a;
  for (int i = 0; i < 4; i++) a[i] = as_u32(out[i]);
  ISO_UNROLL
  for (int i = 0; i < d.kCount; i++) d[i] = out[i];
  wgmma_fence();
  wgmma_mma_async_ss<T, kA, kB>(d, desc, desc + 1, scale_d);
  wgmma_mma_async_rs<T, kB>(d, a, desc, scale_d);
  wgmma_commit_group();
  wgmma_wait_group<0>();
  register_fence(d);
  ISO_UNROLL
  for (int i = 0; i < d.kCount; i++) out[i] = d[i];
}

template <int N>
__global__ void __launch_bounds__(128) wgmma_of_n(u64 desc, bool scale_d, float* out) {
  using instr::Major;
  every_wgmma<bf16, Major::k, Major::k, N>(desc, scale_d, out);
  every_wgmma<bf16, Major::mn, Major::mn, N>(desc, scale_d, out);
  every_wgmma<f16, Major::k, Major::mn, N>(desc, scale_d, out);
  every_wgmma<f16, Major::mn, Major::k, N>(desc, scale_d, out);
}

#define ISO_WGMMA_OF(n) template __global__ void wgmma_of_n<n>(u64, bool, float*);
ISO_WGMMA_OF(8)
ISO_WGMMA_OF(16) ISO_WGMMA_OF(24) ISO_WGMMA_OF(32) ISO_WGMMA_OF(40) ISO_WGMMA_OF(48) ISO_WGMMA_OF(56) ISO_WGMMA_OF(64)
    ISO_WGMMA_OF(72) ISO_WGMMA_OF(80) ISO_WGMMA_OF(88) ISO_WGMMA_OF(96) ISO_WGMMA_OF(104) ISO_WGMMA_OF(112)
        ISO_WGMMA_OF(120) ISO_WGMMA_OF(128) ISO_WGMMA_OF(136) ISO_WGMMA_OF(144) ISO_WGMMA_OF(152) ISO_WGMMA_OF(160)
            ISO_WGMMA_OF(168) ISO_WGMMA_OF(176) ISO_WGMMA_OF(184) ISO_WGMMA_OF(192) ISO_WGMMA_OF(200) ISO_WGMMA_OF(208)
                ISO_WGMMA_OF(216) ISO_WGMMA_OF(224) ISO_WGMMA_OF(232) ISO_WGMMA_OF(240) ISO_WGMMA_OF(248) ISO_WGMMA_OF(256)

                    extern "C" __global__ void __launch_bounds__(GemmConfig::kThreads)
                        test_gemm(const __grid_constant__ GemmParams p) {
  gemm<GemmConfig>(p);
}
extern "C" __global__ void __launch_bounds__(AttentionForwardConfig::kThreads)
    test_attention_forward(const __grid_constant__ AttentionForwardParams p) {
  attention_forward<AttentionForwardConfig>(p);
}
extern "C" __global__ void __launch_bounds__(AttentionBackwardConfig::kThreads)
    test_attention_backward(const __grid_constant__ AttentionBackwardParams p) {
  attention_backward<AttentionBackwardConfig>(p);
}
extern "C" __global__ void test_multicast(const __grid_constant__ MulticastParams p) { multicast<MulticastConfig>(p); }
extern "C" __global__ void test_cp_async(const __grid_constant__ CpAsyncParams p) { cp_async_kernel<CpAsyncConfig>(p); }
extern "C" __global__ void test_ordered_sum(const __grid_constant__ OrderedSumParams p) { ordered_sum(p); }

}  // namespace iso::test
