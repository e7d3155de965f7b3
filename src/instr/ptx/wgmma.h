// wgmma: products m64nNk16 of a warpgroup, with accumulators in registers. PTX manual: "wgmma.mma_async" and the sections
// around it. sm_90a only.
#pragma once

#include "instr/ptx/wgmma_registers.h"

namespace iso::instr {

// The accumulators of one thread. accumulator_row and accumulator_column say which element is where. Not copyable: between
// a wgmma and its wait_group they belong to the tensor core.
template <int N>
class WgmmaAccumulator {
 public:
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
  static constexpr int kCount = N / 2;

  WgmmaAccumulator() = default;
  WgmmaAccumulator(const WgmmaAccumulator&) = delete;
  WgmmaAccumulator& operator=(const WgmmaAccumulator&) = delete;
  ISO_DEVICE float& operator[](int i) { return values_[i]; }
  ISO_DEVICE float (&values())[kCount] { return values_; }

 private:
  float values_[kCount];
};

// Four registers of two 16-bit elements: rows row, row + 8, columns column and the next, then the same at column + 8.
class WgmmaFragmentA {
 public:
  WgmmaFragmentA() = default;
  WgmmaFragmentA(const WgmmaFragmentA&) = delete;
  WgmmaFragmentA& operator=(const WgmmaFragmentA&) = delete;
  ISO_DEVICE u32& operator[](int i) { return registers_[i]; }

 private:
  u32 registers_[4];
};

// The instruction per N and element type. Operands after the N / 2 accumulators: descriptors or fragment of A, then
// scale_d, then the majors as immediates.
template <class T, int N>
struct WgmmaInstruction;

#define ISO_WGMMA(n, type, accumulators, d, o0, o1, o2, o3, o4, o5, o6)                                            \
  template <>                                                                                                      \
  struct WgmmaInstruction<type, n> {                                                                               \
    template <int kMajorA, int kMajorB>                                                                            \
    ISO_DEVICE static void ss(float (&v)[n / 2], u64 desc_a, u64 desc_b, int scale_d) {                            \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #o2                                                        \
                   ", 0;\n"                                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" accumulators "}, %" #o0  \
                   ", %" #o1 ", p, 1, 1, %" #o3 ", %" #o4 ";\n}"                                                   \
                   : d(v)                                                                                          \
                   : "l"(desc_a), "l"(desc_b), "r"(scale_d), "n"(kMajorA), "n"(kMajorB)                            \
                   : "memory");                                                                                    \
    }                                                                                                              \
    template <int kMajorB>                                                                                         \
    ISO_DEVICE static void rs(float (&v)[n / 2], u32 a0, u32 a1, u32 a2, u32 a3, u64 desc_b, int scale_d) {        \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #o5                                                        \
                   ", 0;\n"                                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" accumulators "}, {%" #o0 \
                   ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", p, 1, 1, %" #o6 ";\n}"                              \
                   : d(v)                                                                                          \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(desc_b), "r"(scale_d), "n"(kMajorB)                   \
                   : "memory");                                                                                    \
    }                                                                                                              \
  };
#define ISO_WGMMA_TYPES(n, accumulators, d, ...)   \
  ISO_WGMMA(n, bf16, accumulators, d, __VA_ARGS__) \
  ISO_WGMMA(n, f16, accumulators, d, __VA_ARGS__)
ISO_WGMMA_TYPES(8, ISO_WGMMA_LIST_4, ISO_WGMMA_OUT_4, 4, 5, 6, 7, 8, 9, 10)
ISO_WGMMA_TYPES(16, ISO_WGMMA_LIST_8, ISO_WGMMA_OUT_8, 8, 9, 10, 11, 12, 13, 14)
ISO_WGMMA_TYPES(24, ISO_WGMMA_LIST_12, ISO_WGMMA_OUT_12, 12, 13, 14, 15, 16, 17, 18)
ISO_WGMMA_TYPES(32, ISO_WGMMA_LIST_16, ISO_WGMMA_OUT_16, 16, 17, 18, 19, 20, 21, 22)
ISO_WGMMA_TYPES(40, ISO_WGMMA_LIST_20, ISO_WGMMA_OUT_20, 20, 21, 22, 23, 24, 25, 26)
ISO_WGMMA_TYPES(48, ISO_WGMMA_LIST_24, ISO_WGMMA_OUT_24, 24, 25, 26, 27, 28, 29, 30)
ISO_WGMMA_TYPES(56, ISO_WGMMA_LIST_28, ISO_WGMMA_OUT_28, 28, 29, 30, 31, 32, 33, 34)
ISO_WGMMA_TYPES(64, ISO_WGMMA_LIST_32, ISO_WGMMA_OUT_32, 32, 33, 34, 35, 36, 37, 38)
ISO_WGMMA_TYPES(72, ISO_WGMMA_LIST_36, ISO_WGMMA_OUT_36, 36, 37, 38, 39, 40, 41, 42)
ISO_WGMMA_TYPES(80, ISO_WGMMA_LIST_40, ISO_WGMMA_OUT_40, 40, 41, 42, 43, 44, 45, 46)
ISO_WGMMA_TYPES(88, ISO_WGMMA_LIST_44, ISO_WGMMA_OUT_44, 44, 45, 46, 47, 48, 49, 50)
ISO_WGMMA_TYPES(96, ISO_WGMMA_LIST_48, ISO_WGMMA_OUT_48, 48, 49, 50, 51, 52, 53, 54)
ISO_WGMMA_TYPES(104, ISO_WGMMA_LIST_52, ISO_WGMMA_OUT_52, 52, 53, 54, 55, 56, 57, 58)
ISO_WGMMA_TYPES(112, ISO_WGMMA_LIST_56, ISO_WGMMA_OUT_56, 56, 57, 58, 59, 60, 61, 62)
ISO_WGMMA_TYPES(120, ISO_WGMMA_LIST_60, ISO_WGMMA_OUT_60, 60, 61, 62, 63, 64, 65, 66)
ISO_WGMMA_TYPES(128, ISO_WGMMA_LIST_64, ISO_WGMMA_OUT_64, 64, 65, 66, 67, 68, 69, 70)
ISO_WGMMA_TYPES(136, ISO_WGMMA_LIST_68, ISO_WGMMA_OUT_68, 68, 69, 70, 71, 72, 73, 74)
ISO_WGMMA_TYPES(144, ISO_WGMMA_LIST_72, ISO_WGMMA_OUT_72, 72, 73, 74, 75, 76, 77, 78)
ISO_WGMMA_TYPES(152, ISO_WGMMA_LIST_76, ISO_WGMMA_OUT_76, 76, 77, 78, 79, 80, 81, 82)
ISO_WGMMA_TYPES(160, ISO_WGMMA_LIST_80, ISO_WGMMA_OUT_80, 80, 81, 82, 83, 84, 85, 86)
ISO_WGMMA_TYPES(168, ISO_WGMMA_LIST_84, ISO_WGMMA_OUT_84, 84, 85, 86, 87, 88, 89, 90)
ISO_WGMMA_TYPES(176, ISO_WGMMA_LIST_88, ISO_WGMMA_OUT_88, 88, 89, 90, 91, 92, 93, 94)
ISO_WGMMA_TYPES(184, ISO_WGMMA_LIST_92, ISO_WGMMA_OUT_92, 92, 93, 94, 95, 96, 97, 98)
ISO_WGMMA_TYPES(192, ISO_WGMMA_LIST_96, ISO_WGMMA_OUT_96, 96, 97, 98, 99, 100, 101, 102)
ISO_WGMMA_TYPES(200, ISO_WGMMA_LIST_100, ISO_WGMMA_OUT_100, 100, 101, 102, 103, 104, 105, 106)
ISO_WGMMA_TYPES(208, ISO_WGMMA_LIST_104, ISO_WGMMA_OUT_104, 104, 105, 106, 107, 108, 109, 110)
ISO_WGMMA_TYPES(216, ISO_WGMMA_LIST_108, ISO_WGMMA_OUT_108, 108, 109, 110, 111, 112, 113, 114)
ISO_WGMMA_TYPES(224, ISO_WGMMA_LIST_112, ISO_WGMMA_OUT_112, 112, 113, 114, 115, 116, 117, 118)
ISO_WGMMA_TYPES(232, ISO_WGMMA_LIST_116, ISO_WGMMA_OUT_116, 116, 117, 118, 119, 120, 121, 122)
ISO_WGMMA_TYPES(240, ISO_WGMMA_LIST_120, ISO_WGMMA_OUT_120, 120, 121, 122, 123, 124, 125, 126)
ISO_WGMMA_TYPES(248, ISO_WGMMA_LIST_124, ISO_WGMMA_OUT_124, 124, 125, 126, 127, 128, 129, 130)
ISO_WGMMA_TYPES(256, ISO_WGMMA_LIST_128, ISO_WGMMA_OUT_128, 128, 129, 130, 131, 132, 133, 134)
#undef ISO_WGMMA_TYPES
#undef ISO_WGMMA

template <class T, Major kMajorA, Major kMajorB, int N>
ISO_DEVICE void wgmma_mma_async_ss(WgmmaAccumulator<N>& d, u64 desc_a, u64 desc_b, bool scale_d) {
  WgmmaInstruction<T, N>::template ss<kMajorA == Major::mn, kMajorB == Major::mn>(d.values(), desc_a, desc_b, scale_d);
}
template <class T, Major kMajorB, int N>
ISO_DEVICE void wgmma_mma_async_rs(WgmmaAccumulator<N>& d, WgmmaFragmentA& a, u64 desc_b, bool scale_d) {
  WgmmaInstruction<T, N>::template rs<kMajorB == Major::mn>(d.values(), a[0], a[1], a[2], a[3], desc_b, scale_d);
}

ISO_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ISO_DEVICE void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
ISO_DEVICE void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// No instruction: keeps the compiler from moving accesses to the accumulators across it.
template <int N>
ISO_DEVICE void register_fence(WgmmaAccumulator<N>& d) {
#pragma unroll
  for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace iso::instr
