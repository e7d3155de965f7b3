// The engine that multiplies bf16 with bf16 dot-product instructions, which want B as pairs of consecutive k side by side.
// Same members as FloatEngine. P and dS are rounded to bf16; sums are float32.
//
// Every dim is padded with zeros to a multiple of 32, keys of a tile likewise, so products are whole 32 x 32 blocks, which
// Multiply::block makes (engine_amx.h, engine_dot.h). Only the last keys of dK and dV need care: the padding rows of a block
// belong to other keys.
#pragma once

#include <immintrin.h>

#include "cpu/level/engine_float.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

template <class Multiply>
struct PairEngine {
  using Element = bf16;
  static constexpr i64 kBlock = 32;
  static constexpr i64 kPanel = kBlock;
  static constexpr bool kBlocks = true;

  static i64 vectors(i64) { return kPanel / kLanes; }

  using Session = typename Multiply::Session;

  struct Rows {
    const bf16* data;
    i64 ld;
  };

  static void read_row(const bf16* src, i64 stride, i64 dim, bf16* dst) {
    if (stride == 1) {
      __builtin_memcpy(dst, src, static_cast<unsigned long>(dim) * sizeof(bf16));
    } else {
      for (i64 k = 0; k < dim; ++k) dst[k] = src[k * stride];
    }
  }

  // Pairs of a row stay together, so a panel is the transpose of a matrix of 32-bit words.
  static void panels(const bf16* rows, i64 count, i64 ld, bf16* out) {
    for (i64 r = 0; r < count; r += kPanel)
      transpose(reinterpret_cast<const float*>(rows + r * ld), ld / 2, kPanel, ld / 2,
                reinterpret_cast<float*>(out + r * ld), kPanel);
  }

  // Rows 2n and 2n + 1 as words: word [n][k] = (row 2n, row 2n + 1)[k].
  static void pair_rows(const bf16* even, const bf16* odd, i64 ld, bf16* out) {
    for (i64 k = 0; k < ld; k += 16) {
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(even + k)));
      const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(odd + k)));
      _mm512_storeu_si512(out + 2 * k, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }

  // Whole blocks, as add_keys reads them: the rows past the last one are zeros.
  static const bf16* columns(const bf16* rows, i64 count, i64 ld, bf16* out) {
    for (i64 r = 0; r < align_up(count, kBlock); r += 2) pair_rows(rows + r * ld, rows + (r + 1) * ld, ld, out + r * ld);
    return out;
  }

  // Whole blocks: zeros around the keys.
  static void finish_keys(bf16* copy, i64 count, i64 dim, i64 ld) {
    for (i64 j = 0; j < count; ++j)
      for (i64 k = dim; k < ld; ++k) copy[j * ld + k] = {0};
    for (i64 k = count * ld; k < align_up(count, kBlock) * ld; ++k) copy[k] = {0};
  }

  // Element [m][k] is rows[k][m], in `out`: keys are paired, then words transposed.
  static Rows keys_transposed(Rows rows, i64 count, i64, bf16* out) {
    alignas(64) bf16 pairs[kBlock * kMaxDim];
    const i64 ld = rows.ld;
    for (i64 k = 0; k < align_up(count, kBlock); k += kBlock) {
      for (i64 n = 0; n < kBlock; n += 2)
        pair_rows(rows.data + (k + n) * ld, rows.data + (k + n + 1) * ld, ld, pairs + n * ld);
      transpose(reinterpret_cast<const float*>(pairs), ld, kBlock / 2, ld, reinterpret_cast<float*>(out + k), kTileN / 2);
    }
    return {out, kTileN};
  }

  static void multiply_rows(Rows rows, i64 count, i64 dim, const bf16* panel, float* c, i64) {
    for (i64 m = 0; m < count; m += kBlock)
      Multiply::template block<Old::overwrite>(rows.data + m * rows.ld, rows.ld, panel, kPanel, c + m * kPanel, kPanel,
                                               align_up(dim, kBlock));
  }

  template <Old old>
  static void multiply_transposed(Rows keys, i64 count, i64 dim, const bf16* probabilities, float* c, i64,
                                  const float* scale = nullptr) {
    if (old == Old::scale) scale_columns(c, align_up(dim, kBlock), scale);
    for (i64 m = 0; m < dim; m += kBlock)
      Multiply::template block<old == Old::overwrite ? Old::overwrite : Old::add>(
          keys.data + m * keys.ld, keys.ld, probabilities, kPanel, c + m * kPanel, kPanel, align_up(count, kBlock));
  }

  static void add_keys(const bf16* probability_rows, i64 count, i64 rows, const bf16* columns, i64 ld, i64 dim, float* c) {
    const i64 depth = align_up(rows, kBlock);
    i64 m = 0;
    for (; m + kBlock <= count; m += kBlock)
      for (i64 n = 0; n < dim; n += kBlock)
        Multiply::template block<Old::add>(probability_rows + m * kTileRows, kTileRows, columns + 2 * n, ld, c + m * ld + n,
                                           ld, depth);
    if (m == count) return;
    // The last rows of the block belong to other keys: on a copy, so that these stay as they are.
    alignas(64) float sums[kBlock * kBlock] = {};
    const i64 rest = count - m;
    for (i64 n = 0; n < dim; n += kBlock) {
      for (i64 j = 0; j < rest; ++j) __builtin_memcpy(sums + j * kBlock, c + (m + j) * ld + n, kBlock * sizeof(float));
      Multiply::template block<Old::add>(probability_rows + m * kTileRows, kTileRows, columns + 2 * n, ld, sums, kBlock,
                                         depth);
      for (i64 j = 0; j < rest; ++j) __builtin_memcpy(c + (m + j) * ld + n, sums + j * kBlock, kBlock * sizeof(float));
    }
  }

  static bf16* probabilities(float*, bf16* own) { return own; }
  HWY_INLINE static void store_two(bf16* probabilities, i64 j, i64 column, Vec even, Vec odd) {
    // [odd | even] as 32 bf16, then lane by lane side by side.
    const __m512bh both = _mm512_cvtne2ps_pbh(odd.raw, even.raw);
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                           5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(probabilities + j * kPanel + 2 * column,
                        _mm512_permutexvar_epi16(order, __builtin_bit_cast(__m512i, both)));
  }
  // Keys past the last one, up to a whole block.
  static void finish_probabilities(bf16* probabilities, i64 count) {
    for (i64 k = align_up<i64>(count, 2) * kPanel; k < align_up(count, kBlock) * kPanel; ++k) probabilities[k] = {0};
  }

  HWY_INLINE static void store_row(bf16* probability_rows, i64 j, i64 row, Vec v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(probability_rows + j * kTileRows + row),
                        __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(v.raw)));
  }

 private:
  static constexpr i64 kMaxDim = 256;

  // c[rows][kPanel] *= scale, unless it is 1 throughout.
  static void scale_columns(float* c, i64 rows, const float* scale) {
    const __m512 s0 = _mm512_loadu_ps(scale), s1 = _mm512_loadu_ps(scale + 16), one = _mm512_set1_ps(1.0f);
    if (_mm512_cmp_ps_mask(s0, one, _CMP_NEQ_UQ) == 0 && _mm512_cmp_ps_mask(s1, one, _CMP_NEQ_UQ) == 0) return;
    for (i64 m = 0; m < rows; ++m) {
      _mm512_storeu_ps(c + m * kPanel, _mm512_mul_ps(_mm512_loadu_ps(c + m * kPanel), s0));
      _mm512_storeu_ps(c + m * kPanel + 16, _mm512_mul_ps(_mm512_loadu_ps(c + m * kPanel + 16), s1));
    }
  }
};

}  // namespace ISO_TARGET
}  // namespace iso::cpu
