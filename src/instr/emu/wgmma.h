// wgmma: products m64nNk16 of a warpgroup, with accumulators in registers.
#pragma once

namespace iso::instr {

// The accumulators of one thread. accumulator_row and accumulator_column say which element is where.
template <int N>
class WgmmaAccumulator : private emu::Fragment {
 public:
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
  static constexpr int kCount = N / 2;

  WgmmaAccumulator() : emu::Fragment(values_, kCount) {}
  float& operator[](int i) {
    touch(i);
    return values_[i];
  }
  emu::Fragment& fragment() { return *this; }

 private:
  float values_[kCount];
};

// Four registers of two 16-bit elements: rows row, row + 8, columns column and the next, then the same at column + 8.
class WgmmaFragmentA : private emu::Fragment {
 public:
  WgmmaFragmentA() : emu::Fragment(nullptr, 0) {}
  u32& operator[](int i) {
    touch(i);
    return registers_[i];
  }
  emu::Fragment& fragment() { return *this; }
  const u32* registers() const { return registers_; }

 private:
  u32 registers_[4];
};

template <class T>
constexpr emu::MatrixType matrix_type() {
  static_assert(sizeof(T) == 2);
  return DTypeOf<T>::value == DType::bf16 ? emu::MatrixType::bf16 : emu::MatrixType::f16;
}

template <class T, Major kMajorA, Major kMajorB, int N>
void wgmma_mma_async_ss(WgmmaAccumulator<N>& d, u64 desc_a, u64 desc_b, bool scale_d, Location at = Location::here()) {
  emu::wgmma_mma_async({N, matrix_type<T>(), false, kMajorA == Major::mn, kMajorB == Major::mn}, d.fragment(), nullptr,
                       nullptr, desc_a, desc_b, scale_d, at);
}
template <class T, Major kMajorB, int N>
void wgmma_mma_async_rs(WgmmaAccumulator<N>& d, WgmmaFragmentA& a, u64 desc_b, bool scale_d,
                        Location at = Location::here()) {
  emu::wgmma_mma_async({N, matrix_type<T>(), true, false, kMajorB == Major::mn}, d.fragment(), &a.fragment(), a.registers(),
                       0, desc_b, scale_d, at);
}

inline void wgmma_fence(Location at = Location::here()) {
  if (!emu::removed("wgmma.fence", at)) emu::wgmma_fence(at);
}
inline void wgmma_commit_group(Location at = Location::here()) {
  if (!emu::removed("wgmma.commit_group", at)) emu::wgmma_commit_group(at);
}
template <int kPending>
void wgmma_wait_group(Location at = Location::here()) {
  if (!emu::removed("wgmma.wait_group", at)) emu::wgmma_wait_group(kPending, at);
}

// No instruction: on the chip it keeps the compiler from moving accesses to the accumulators across it.
template <int N>
void register_fence(WgmmaAccumulator<N>&) {}

}  // namespace iso::instr
