// bf16 products on AMX tiles: C 16 x 16 float32 += A 16 x 32 bf16 (row-major) * B 32 x 16 bf16 (pairs). A block is four
// accumulator tiles, two of A, two of B.
#pragma once

#include "cpu/level/engine_pairs.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

// All eight tiles configured as 16 rows of 64 bytes.
struct TileConfig {
  u8 palette = 1, start_row = 0, reserved[14] = {};
  u16 row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  u8 rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
alignas(64) inline constexpr TileConfig kTileConfig{};

struct AmxMultiply {
  struct Session {
    Session() { _tile_loadconfig(&kTileConfig); }
    ~Session() { _tile_release(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
  };

  // c[32][32] (+)= a[32][depth] * b[depth / 2][32] pairs. lda and ldc in elements, ldb in pairs.
  template <Old old>
  static void block(const bf16* a, i64 lda, const bf16* b, i64 ldb, float* c, i64 ldc, i64 depth) {
    const i64 c_bytes = ldc * 4, a_bytes = lda * 2, b_bytes = ldb * 4;
    // GCC's tile intrinsics do not tell the compiler that they read and write memory.
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (old == Old::add) {
      _tile_loadd(0, c, c_bytes);
      _tile_loadd(1, c + 16, c_bytes);
      _tile_loadd(2, c + 16 * ldc, c_bytes);
      _tile_loadd(3, c + 16 * ldc + 16, c_bytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (i64 k = 0; k < depth; k += 32) {
      _tile_loadd(4, a + k, a_bytes);
      _tile_loadd(5, a + 16 * lda + k, a_bytes);
      _tile_loadd(6, b + k * ldb, b_bytes);
      _tile_loadd(7, b + k * ldb + 32, b_bytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    _tile_stored(2, c + 16 * ldc, c_bytes);
    _tile_stored(3, c + 16 * ldc + 16, c_bytes);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
};

template <>
struct EngineFor<bf16> {
  using type = PairEngine<AmxMultiply>;
};

}  // namespace ISO_TARGET
}  // namespace iso::cpu
