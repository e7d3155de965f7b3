#include <immintrin.h>

#include "peak.h"

namespace iso::tool {
namespace {

constexpr int kChains = 6;  // with two operands, the eight tiles

// The kernel's leave to use tiles is asked for by isoflash_cpu_level_available("amx"), once for the process.
double run(i64 rounds) {
  struct alignas(64) {
    u8 palette = 1, start_row = 0, reserved[14] = {};
    u16 row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    u8 rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  alignas(64) float result[16 * 16] = {};
  _tile_loadconfig(&config);
  _tile_loadd(6, result, 64);
  _tile_loadd(7, result, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (i64 round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_stored(0, result, 64);
  _tile_release();
  return result[0];
}

}  // namespace

extern const PeakLoop peak_amx;
const PeakLoop peak_amx{"amx", true, "tdpbf16ps, 16x16x32", kChains * 16 * 16 * 32 * 2, run};

}  // namespace iso::tool
