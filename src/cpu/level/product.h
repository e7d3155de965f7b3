// The matrix product that all of attention is made of here:
//
//   C[m][n] = scale[n] * C[m][n] + sum_k A(m, k) * B[k][n]        m < rows, n < columns
//
// B and C are row-major with a leading dimension; A lies row-major (element (m, k) at a[m * lda + k]) or column-major (at
// a[k * lda + m]), so keys are multiplied where they are. kRows x kVecs accumulators stay in registers; each sums over k in
// ascending order, so an element's value depends neither on its neighbours nor on where in a panel it lies.
#pragma once

#include ISO_CPU_SIMD

#include "base/compile.h"
#include "base/math.h"

namespace iso::cpu {
inline namespace ISO_TARGET {

enum class ALayout { row_major, column_major };

// What happens to the old C.
enum class Old { overwrite, add, scale };

struct ProductArgs {
  const float* a;
  i64 lda;
  const float* b;
  i64 ldb;
  float* c;
  i64 ldc;
  i64 depth;                     // extent of k
  const float* scale = nullptr;  // columns of it, for Old::scale
};

template <ALayout layout, Old old, int R, int V>
HWY_INLINE void product_block(const ProductArgs& p, const float* HWY_RESTRICT a, float* HWY_RESTRICT c, i64 column) {
  Vec acc[R][V];
  const float* HWY_RESTRICT b = p.b + column;
#pragma GCC unroll 8
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) {
      const float* at = c + m * p.ldc + column + v * kLanes;
      if (old == Old::overwrite) acc[m][v] = hn::Zero(kFloat);
      if (old == Old::add) acc[m][v] = hn::LoadU(kFloat, at);
      if (old == Old::scale) acc[m][v] = hn::Mul(hn::LoadU(kFloat, at), hn::LoadU(kFloat, p.scale + column + v * kLanes));
    }
  const i64 row_step = layout == ALayout::row_major ? p.lda : 1;
  const i64 k_step = layout == ALayout::row_major ? 1 : p.lda;
  for (i64 k = 0; k < p.depth; ++k) {
    Vec bv[V];
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) bv[v] = hn::LoadU(kFloat, b + v * kLanes);
    b += p.ldb;
#pragma GCC unroll 8
    for (int m = 0; m < R; ++m) {
      const Vec av = hn::Set(kFloat, a[m * row_step]);
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) acc[m][v] = hn::MulAdd(av, bv[v], acc[m][v]);
    }
    a += k_step;
  }
#pragma GCC unroll 8
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) hn::StoreU(acc[m][v], kFloat, c + m * p.ldc + column + v * kLanes);
}

template <ALayout layout, Old old, int V>
HWY_NOINLINE void product_panel(const ProductArgs& p, i64 rows, i64 column) {
  const i64 row_step = layout == ALayout::row_major ? p.lda : 1;
  i64 m = 0;
  for (; m + kRows <= rows; m += kRows)
    product_block<layout, old, kRows, V>(p, p.a + m * row_step, p.c + m * p.ldc, column);
  // What is left over goes row by row: at most kRows - 1 rows.
  for (; m < rows; ++m) product_block<layout, old, 1, V>(p, p.a + m * row_step, p.c + m * p.ldc, column);
}

// `columns` is rounded up to whole vectors: B and C must be padded that far.
template <ALayout layout, Old old>
inline void product(const ProductArgs& p, i64 rows, i64 columns) {
  i64 column = 0;
  for (; column + kVecs * kLanes <= columns; column += kVecs * kLanes) product_panel<layout, old, kVecs>(p, rows, column);
  const i64 rest = ceil_div<i64>(columns - column, kLanes);
  if (rest == 3) product_panel<layout, old, 3>(p, rows, column);
  if (rest == 2) product_panel<layout, old, 2>(p, rows, column);
  if (rest == 1) product_panel<layout, old, 1>(p, rows, column);
}

}  // namespace ISO_TARGET
}  // namespace iso::cpu
