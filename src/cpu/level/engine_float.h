// The engine that multiplies in float32: any input type, any level. An engine says how operands of the products are laid out
// and multiplies them; forward.cpp and backward.cpp are written against its members (engine_amx.h has the same).
//
// Operands, with R rows of a query tile and N keys:
//   panels            B with depth = dim:   column r is query row r; kPanel columns a panel
//   columns           B with depth = R:     query rows as they lie
//   key rows          A with depth = dim:   K or V rows
//   keys transposed   A with depth = N
//   probabilities     B with depth = N (a panel of P or dS), and A with depth = R (their rows, kTileRows long)
#pragma once

#include "cpu/level/pack.h"
#include "cpu/level/product.h"
#include "cpu/tiling.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

template <class T>
struct FloatEngine {
  using Element = float;
  static constexpr i64 kPanel = kVecs * kLanes;
  static constexpr bool kBlocks = false;  // products take any extent, not whole blocks

  // Vectors of lanes to work on for the first `columns` columns of a panel.
  static i64 vectors(i64 columns) { return ceil_div<i64>(columns, kLanes); }

  // State of the processor that the products need, held while a work item runs.
  struct Session {};

  struct Rows {
    const float* data;
    i64 ld;
  };

  static void read_row(const T* src, i64 stride, i64 dim, float* dst) { iso::cpu::read_row(src, stride, dim, dst); }

  static void panels(const float* rows, i64 count, i64 ld, float* out) {
    for (i64 r = 0; r < count; r += kPanel)
      transpose(rows + r * ld, ld, min_of<i64>(kPanel, count - r), ld, out + r * ld, kPanel);
  }

  static const float* columns(const float* rows, i64, i64, float*) { return rows; }

  // After `count` keys were read into `copy`.
  static void finish_keys(float*, i64, i64, i64) {}

  static Rows keys_transposed(Rows rows, i64, i64, float*) { return rows; }

  // c[count][kPanel] = rows * panel
  static void multiply_rows(Rows rows, i64 count, i64 dim, const float* panel, float* c, i64 columns) {
    product<ALayout::row_major, Old::overwrite>(
        {.a = rows.data, .lda = rows.ld, .b = panel, .ldb = kPanel, .c = c, .ldc = kPanel, .depth = dim}, count, columns);
  }

  // c[dim][kPanel] = scale * c + transposed keys * probabilities
  template <Old old>
  static void multiply_transposed(Rows keys, i64 count, i64 dim, const float* probabilities, float* c, i64 columns,
                                  const float* scale = nullptr) {
    product<ALayout::column_major, old>({.a = keys.data,
                                         .lda = keys.ld,
                                         .b = probabilities,
                                         .ldb = kPanel,
                                         .c = c,
                                         .ldc = kPanel,
                                         .depth = count,
                                         .scale = scale},
                                        dim, columns);
  }

  // c[count][ld] += rows of probabilities * columns
  static void add_keys(const float* probability_rows, i64 count, i64 rows, const float* columns, i64 ld, i64 dim,
                       float* c) {
    product<ALayout::row_major, Old::add>(
        {.a = probability_rows, .lda = kTileRows, .b = columns, .ldb = ld, .c = c, .ldc = ld, .depth = rows}, count, dim);
  }

  // Where a panel of P or dS goes: over the scores it is made from.
  static float* probabilities(float* scores, float*) { return scores; }
  // Keys j and j + 1 (j even) of lanes [column, column + kLanes).
  HWY_INLINE static void store_two(float* probabilities, i64 j, i64 column, Vec even, Vec odd) {
    hn::StoreU(even, kFloat, probabilities + j * kPanel + column);
    hn::StoreU(odd, kFloat, probabilities + (j + 1) * kPanel + column);
  }
  static void finish_probabilities(float*, i64) {}

  HWY_INLINE static void store_row(float* probability_rows, i64 j, i64 row, Vec v) {
    hn::StoreU(v, kFloat, probability_rows + j * kTileRows + row);
  }
};

// The engine for inputs of type T; a level may have a better one (simd_*.h).
template <class T>
struct EngineFor {
  using type = FloatEngine<T>;
};

}  // namespace ISO_TARGET
}  // namespace iso::cpu
