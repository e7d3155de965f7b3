// Pictures of a mask: what each query row sees, and the class of each tile. Everything is drawn from visible(),
// classify_tile() and block_kind() of core/, so a picture cannot disagree with the library.
#pragma once

#include <string>
#include <vector>

#include "core/sequence.h"
#include "png_file.h"
#include "terminal.h"

namespace iso::tool {

// What is drawn: one sequence as one query head sees it, in tiles of tile_m query rows x tile_n keys.
struct MaskView {
  Sequence sequence;
  i64 head = 0;
  i32 tile_m = 1, tile_n = 1;
};
// Of a mask in numbers.
MaskView view_of(const MaskSpec& mask, i32 seqlen_q, i32 tile_m, i32 tile_n);

// What one (query row, key) pair shows: the key's role if the row sees it; `seen` where intervals or block lists show keys
// that no role says anything about.
enum class Cell : unsigned char { hidden, context, history, candidate, seen };

struct MaskRaster {
  i32 rows = 0, cols = 0;       // query rows x keys
  bool roles = true;            // false: the mask has no parts, intervals or block lists say all
  std::vector<Cell> cells;      // row by row
  std::vector<Role> row_roles;  // what stands at each query row
  std::vector<Role> col_roles;  // ... and at each key
  Cell at(i32 row, i32 col) const { return cells[static_cast<std::size_t>(row) * cols + col]; }
  i64 visible_pairs() const;
  bool shows(Cell cell) const;
};

MaskRaster mask_raster(const MaskView& view);

// What a tile is: by its visible pairs, or as the block lists say if the tiles are theirs.
enum class Tile : unsigned char { skipped, partial, full, diag };

// The last row and column of tiles may be smaller.
struct TileGrid {
  i32 tile_m = 1, tile_n = 1, rows = 0, cols = 0;
  bool lists = false;  // the blocks of block lists, in which a partial tile is called mask
  std::vector<Tile> tiles;
  Tile at(i32 row, i32 col) const { return tiles[static_cast<std::size_t>(row) * cols + col]; }
  i64 count(Tile wanted) const;
};

TileGrid tile_grid(const MaskView& view);

// For the terminal, at most as wide as it is; larger masks are scaled down. Ends with a line break.
std::string mask_text(const MaskView& view, const Terminal& terminal);

// A self-contained SVG with axes and legend, readable on light and dark pages.
std::string mask_svg(const MaskView& view);

// The picture without words. Row r and key c lie at the square of picture_scale() pixels whose corner is picture_origin().
Image mask_image(const MaskView& view);
struct PictureGeometry {
  int scale = 1;   // pixels per row and per key
  int margin = 0;  // pixels left of and above the first cell: the stripes that show the roles
  int x(i32 col) const { return margin + col * scale; }
  int y(i32 row) const { return margin + row * scale; }
};
PictureGeometry picture_geometry(i32 rows, i32 cols);
Rgb cell_colour(Cell cell);

}  // namespace iso::tool
