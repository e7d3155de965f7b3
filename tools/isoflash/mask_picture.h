// Pictures of a mask: what each query row sees, and the class of each tile. Everything is drawn from visible() and
// classify_tile() of core/mask.h, so a picture cannot disagree with the library.
#pragma once

#include <string>
#include <vector>

#include "core/mask.h"
#include "png_file.h"
#include "terminal.h"

namespace iso::tool {

// What one (query row, key) pair shows: the key's role if the row sees it.
enum class Cell : unsigned char { hidden, context, history, candidate };

struct MaskRaster {
  i32 rows = 0, cols = 0;       // query rows x keys
  std::vector<Cell> cells;      // row by row
  std::vector<Role> row_roles;  // what stands at each query row
  std::vector<Role> col_roles;  // ... and at each key
  Cell at(i32 row, i32 col) const { return cells[static_cast<std::size_t>(row) * cols + col]; }
  i64 visible_pairs() const;
};

MaskRaster mask_raster(const MaskSpec& mask, i32 seqlen_q);

// The classes of the tiles of tile_m query rows x tile_n keys; the last row and column of tiles may be smaller.
struct TileGrid {
  i32 tile_m = 1, tile_n = 1, rows = 0, cols = 0;
  std::vector<TileClass> classes;
  TileClass at(i32 row, i32 col) const { return classes[static_cast<std::size_t>(row) * cols + col]; }
  i64 count(TileClass wanted) const;
};

TileGrid tile_grid(const MaskSpec& mask, i32 seqlen_q, i32 tile_m, i32 tile_n);

// For the terminal, at most as wide as it is; larger masks are scaled down. Ends with a line break.
std::string mask_text(const MaskSpec& mask, i32 seqlen_q, int tile_m, int tile_n, const Terminal& terminal);

// A self-contained SVG with axes and legend, readable on light and dark pages.
std::string mask_svg(const MaskSpec& mask, i32 seqlen_q, int tile_m, int tile_n);

// The picture without words. Row r and key c lie at the square of picture_scale() pixels whose corner is picture_origin().
Image mask_image(const MaskSpec& mask, i32 seqlen_q, int tile_m, int tile_n);
struct PictureGeometry {
  int scale = 1;   // pixels per row and per key
  int margin = 0;  // pixels left of and above the first cell: the stripes that show the roles
  int x(i32 col) const { return margin + col * scale; }
  int y(i32 row) const { return margin + row * scale; }
};
PictureGeometry picture_geometry(i32 rows, i32 cols);
Rgb cell_colour(Cell cell);

}  // namespace iso::tool
