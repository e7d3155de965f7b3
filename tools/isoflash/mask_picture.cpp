#include "mask_picture.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

namespace iso::tool {
namespace {

struct Swatch {
  const char* css;    // class name in the SVG
  const char* title;  // in the legend
  const char* solid;  // character for a terminal without colours
  Rgb light, dark;
};

// Okabe-Ito colours: told apart with any colour vision. Indexed by Cell.
constexpr std::array<Swatch, 5> kSwatches{{
    {"hidden", "not seen", "\u00b7", {0xf2, 0xf2, 0xf2}, {0x26, 0x26, 0x2a}},
    {"context", "context", "\u2593", {0xe6, 0x9f, 0x00}, {0xe6, 0x9f, 0x00}},
    {"history", "history", "\u2592", {0x56, 0xb4, 0xe9}, {0x3d, 0x8f, 0xc4}},
    {"candidate", "own candidate group", "\u2588", {0x00, 0x9e, 0x73}, {0x1f, 0xb8, 0x8c}},
    {"seen", "seen", "\u2588", {0xcc, 0x79, 0xa7}, {0xb0, 0x62, 0x8f}},
}};
constexpr Rgb kPadding{0xbb, 0xbb, 0xbb};

// Swatches that a picture explains.
std::vector<Swatch> legend(const MaskRaster& raster) {
  std::vector<Swatch> out;
  for (std::size_t n = 0; n < kSwatches.size(); ++n) {
    const Cell cell = static_cast<Cell>(n);
    const bool of_roles = cell == Cell::context || cell == Cell::history || cell == Cell::candidate;
    if (cell == Cell::hidden || (of_roles ? raster.roles : raster.shows(cell))) out.push_back(kSwatches[n]);
  }
  return out;
}

const Swatch& swatch(Cell cell) { return kSwatches[static_cast<std::size_t>(cell)]; }

Cell cell_of(Role role) { return static_cast<Cell>(role); }
static_assert(static_cast<int>(Cell::context) == static_cast<int>(Role::context) &&
              static_cast<int>(Cell::history) == static_cast<int>(Role::history) &&
              static_cast<int>(Cell::candidate) == static_cast<int>(Role::candidate) &&
              static_cast<int>(Cell::hidden) == static_cast<int>(Role::padding));

const char* role_name(Role role) {
  constexpr const char* names[] = {"padding", "context", "history", "candidate"};
  return names[static_cast<int>(role)];
}

Rgb role_colour(Role role) { return role == Role::padding ? kPadding : cell_colour(cell_of(role)); }

std::string hex(Rgb c) { return fmt::format("#{:02x}{:02x}{:02x}", c.r, c.g, c.b); }

// Runs of equal roles: [begin, end) and what stands there.
struct RoleRun {
  i32 begin, end;
  Role role;
};
std::vector<RoleRun> role_runs(const std::vector<Role>& roles) {
  std::vector<RoleRun> runs;
  for (i32 n = 0; n < static_cast<i32>(roles.size()); ++n) {
    if (runs.empty() || runs.back().role != roles[n]) runs.push_back({n, n, roles[n]});
    runs.back().end = n + 1;
  }
  return runs;
}

const char* partial_name(const TileGrid& tiles) { return tiles.lists ? "mask" : "partial"; }

// One line of counts that ends every picture in words.
std::string summary(const MaskRaster& raster, const TileGrid& tiles) {
  const i64 all = static_cast<i64>(raster.rows) * raster.cols, pairs = raster.visible_pairs();
  std::string out = fmt::format("{} of {} pairs visible ({:.1f} %); tiles {}x{}: {} full, {} {}, ", pairs, all,
                                all ? 100.0 * pairs / all : 0.0, tiles.tile_m, tiles.tile_n, tiles.count(Tile::full),
                                tiles.count(Tile::partial), partial_name(tiles));
  if (tiles.lists) out += fmt::format("{} diag, ", tiles.count(Tile::diag));
  return out + fmt::format("{} skipped", tiles.count(Tile::skipped));
}

// The colour or character of a block of cells [row, row_end) x [col, col_end): the role it shows most, and whether it is
// seen whole. One visible pair is enough to show: the candidates' diagonal is thin and must not vanish when scaled down.
struct Block {
  Cell cell = Cell::hidden;
  bool whole = false;
};
Block block_of(const MaskRaster& raster, i32 row, i32 row_end, i32 col, i32 col_end) {
  std::array<i64, kSwatches.size()> counts{};
  for (i32 r = row; r < row_end; ++r)
    for (i32 c = col; c < col_end; ++c) ++counts[static_cast<std::size_t>(raster.at(r, c))];
  const auto most = std::max_element(counts.begin() + 1, counts.end());
  if (*most == 0) return {};
  return {static_cast<Cell>(most - counts.begin()), counts[0] == 0};
}

std::string paint(Cell upper, bool upper_whole, Cell lower, bool lower_whole) {
  const auto shade = [](Cell cell, bool whole) {
    const Rgb c = swatch(cell).dark;
    if (whole || cell == Cell::hidden) return c;
    return Rgb{static_cast<std::uint8_t>(c.r * 2 / 3), static_cast<std::uint8_t>(c.g * 2 / 3),
               static_cast<std::uint8_t>(c.b * 2 / 3)};
  };
  const Rgb top = shade(upper, upper_whole), bottom = shade(lower, lower_whole);
  return fmt::format("\033[38;2;{};{};{}m\033[48;2;{};{};{}m\u2580", top.r, top.g, top.b, bottom.r, bottom.g, bottom.b);
}

// Row numbers and roles are written at the first row of each run and at every tenth line.
std::string gutter(const MaskRaster& raster, i32 row, i32 row_end, bool every) {
  if (!raster.roles) return every ? fmt::format("{:>6} {:<9} ", row, "") : fmt::format("{:>16} ", "");
  const Role role = raster.row_roles[row];
  const bool starts = row == 0 || raster.row_roles[row - 1] != role;
  bool begins = starts;
  for (i32 r = row + 1; r < row_end; ++r) begins = begins || raster.row_roles[r] != raster.row_roles[r - 1];
  if (!begins && !every) return fmt::format("{:>16} ", "");
  return fmt::format("{:>6} {:<9} ", row, begins ? role_name(raster.row_roles[row_end - 1]) : "");
}
constexpr int kGutter = 17;

std::string tile_map(const TileGrid& tiles, const Terminal& terminal) {
  std::string out;
  const i32 shown = std::min<i32>(tiles.cols, (terminal.columns - kGutter) / 2);
  for (i32 row = 0; row < tiles.rows; ++row) {
    out += fmt::format("{:>6} {:<9} ", row * tiles.tile_m, row == 0 ? "tiles" : "");
    for (i32 col = 0; col < shown; ++col) {
      constexpr const char* kTiles[] = {"\u00b7\u00b7", "\u2592\u2592", "\u2588\u2588", "\u2572\u2572"};
      out += kTiles[static_cast<int>(tiles.at(row, col))];
    }
    out += shown < tiles.cols ? "\u2026\n" : "\n";
  }
  return out;
}

// Rectangles of equal cells, in cell units: rows that look the same are joined.
std::string svg_cells(const MaskRaster& raster) {
  std::string out;
  const auto same = [&](i32 a, i32 b) {
    return std::equal(&raster.cells[static_cast<std::size_t>(a) * raster.cols],
                      &raster.cells[static_cast<std::size_t>(a) * raster.cols] + raster.cols,
                      &raster.cells[static_cast<std::size_t>(b) * raster.cols]);
  };
  if (raster.cols == 0) return out;
  for (i32 row = 0; row < raster.rows;) {
    i32 row_end = row + 1;
    while (row_end < raster.rows && same(row, row_end)) ++row_end;
    for (i32 col = 0; col < raster.cols;) {
      const Cell cell = raster.at(row, col);
      i32 col_end = col + 1;
      while (col_end < raster.cols && raster.at(row, col_end) == cell) ++col_end;
      if (cell != Cell::hidden)
        out += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", swatch(cell).css, col,
                           row, col_end - col, row_end - row);
      col = col_end;
    }
    row = row_end;
  }
  return out;
}

// Every rule is for this picture only: it may stand inline in a page among others.
std::string svg_style(const MaskRaster& raster) {
  const auto rules = [&](bool dark) {
    std::string css = dark ? ".mask .ink{fill:#e6e6e6}.mask .line{stroke:#e6e6e6}.mask .grid{stroke:#3a3a40}"
                           : ".mask .ink{fill:#222}.mask .line{stroke:#222}.mask .grid{stroke:#fff}";
    for (const Swatch& s : legend(raster)) css += fmt::format(".mask .{}{{fill:{}}}", s.css, hex(dark ? s.dark : s.light));
    return css;
  };
  return fmt::format(
      "<style>.mask text{{font:13px system-ui,sans-serif}}.mask .small{{font-size:11px}}.mask .padding{{fill:{}}}"
      ".mask .grid,.mask .line{{fill:none}}{}@media(prefers-color-scheme:dark){{{}}}</style>\n",
      hex(kPadding), rules(false), rules(true));
}

// Stripes of the roles along both axes with their names, where there is room for them.
std::string svg_axes(const MaskRaster& raster, double cell, int left, int top) {
  std::string out;
  if (!raster.roles) return out;
  for (const RoleRun& run : role_runs(raster.col_roles)) {
    const double x = left + run.begin * cell, width = (run.end - run.begin) * cell;
    const char* name = role_name(run.role);
    const char* css = run.role == Role::padding ? "padding" : swatch(cell_of(run.role)).css;
    out += fmt::format("<rect class=\"{}\" x=\"{:g}\" y=\"{}\" width=\"{:g}\" height=\"6\"/>", css, x, top - 9, width);
    if (width > 7.0 * std::char_traits<char>::length(name))
      out += fmt::format("<text class=\"ink small\" x=\"{:g}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x + width / 2,
                         top - 13, name);
  }
  for (const RoleRun& run : role_runs(raster.row_roles)) {
    const double y = top + run.begin * cell, height = (run.end - run.begin) * cell;
    const char* css = run.role == Role::padding ? "padding" : swatch(cell_of(run.role)).css;
    out += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{:g}\" width=\"6\" height=\"{:g}\"/>", css, left - 9, y, height);
    if (height >= 12)
      out += fmt::format("<text class=\"ink small\" x=\"{}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n", left - 13,
                         y + height / 2 + 4, role_name(run.role));
  }
  return out;
}

Tile tile_at(const MaskView& view, bool lists, i32 m_block, i32 n_block) {
  const Sequence& s = view.sequence;
  if (lists) {
    constexpr Tile kTiles[] = {Tile::skipped, Tile::partial, Tile::full, Tile::diag};  // by BlockKind
    return kTiles[static_cast<int>(block_kind(s.blocks, view.head, m_block, n_block))];
  }
  const Interval rows{m_block * view.tile_m, min_of((m_block + 1) * view.tile_m, s.seqlen_q)};
  const Interval keys{n_block * view.tile_n, min_of((n_block + 1) * view.tile_n, s.seqlen_kv)};
  if (mask_only(s)) {
    const i32 offset = s.mask.query_offset;
    const TileClass c = classify_tile(s.mask, {rows.begin + offset, rows.end + offset}, keys);
    return c == TileClass::full ? Tile::full : c == TileClass::partial ? Tile::partial : Tile::skipped;
  }
  i64 seen = 0;
  for (i32 i = rows.begin; i < rows.end; ++i)
    for (i32 j = keys.begin; j < keys.end; ++j) seen += visible(s, view.head, i, j) ? 1 : 0;
  return seen == 0 ? Tile::skipped : seen == i64{rows.size()} * keys.size() ? Tile::full : Tile::partial;
}

// The border of a tile: dashed if partial, with its diagonal if that is all it has.
std::string svg_tile(Tile tile, double x, double y, double width, double height) {
  std::string out = fmt::format("<rect class=\"line\" x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"{}/>", x, y,
                                width, height, tile == Tile::partial ? " stroke-dasharray=\"4 3\"" : "");
  if (tile == Tile::diag) out += fmt::format("<path class=\"line\" d=\"M{:g} {:g}l{:g} {:g}\"/>", x, y, width, height);
  return out;
}

std::string svg_legend(const MaskRaster& raster, const TileGrid& tiles, double y) {
  std::string out;
  double x = 12;
  for (const Swatch& s : legend(raster)) {
    out += fmt::format("<rect class=\"{}\" x=\"{:g}\" y=\"{:g}\" width=\"14\" height=\"14\"/>", s.css, x, y - 11);
    out += fmt::format("<text class=\"ink small\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", x + 19, y, s.title);
    x += 40 + 6.4 * std::char_traits<char>::length(s.title);
  }
  for (const Tile tile : {Tile::full, Tile::partial, Tile::diag}) {
    if (tile == Tile::diag && !tiles.lists) continue;
    const char* const name = tile == Tile::full ? "full" : tile == Tile::diag ? "diag" : partial_name(tiles);
    out += svg_tile(tile, x, y - 11, 14, 14);
    out += fmt::format("<text class=\"ink small\" x=\"{:g}\" y=\"{:g}\">{} tile</text>\n", x + 19, y, name);
    x += 86;
  }
  return out;
}

}  // namespace

i64 MaskRaster::visible_pairs() const {
  return static_cast<i64>(cells.size()) - std::count(cells.begin(), cells.end(), Cell::hidden);
}

bool MaskRaster::shows(Cell cell) const { return std::find(cells.begin(), cells.end(), cell) != cells.end(); }

i64 TileGrid::count(Tile wanted) const { return std::count(tiles.begin(), tiles.end(), wanted); }

Rgb cell_colour(Cell cell) { return swatch(cell).light; }

MaskView view_of(const MaskSpec& mask, i32 seqlen_q, i32 tile_m, i32 tile_n) {
  MaskView view;
  view.sequence.mask = mask;
  view.sequence.seqlen_q = view.sequence.slot_q = seqlen_q;
  view.sequence.seqlen_kv = view.sequence.slot_kv = view.sequence.seqlen_cached = mask.seqlen_kv;
  view.tile_m = tile_m;
  view.tile_n = tile_n;
  return view;
}

MaskRaster mask_raster(const MaskView& view) {
  const Sequence& s = view.sequence;
  MaskRaster raster{s.seqlen_q, s.seqlen_kv, mask_only(s) || !is_plain(s.mask), {}, {}, {}};
  raster.cells.reserve(static_cast<std::size_t>(s.seqlen_q) * static_cast<std::size_t>(s.seqlen_kv));
  for (i32 col = 0; col < s.seqlen_kv; ++col) raster.col_roles.push_back(role_at(s.mask, col));
  for (i32 row = 0; row < s.seqlen_q; ++row) {
    raster.row_roles.push_back(role_at(s.mask, row + s.mask.query_offset));
    for (i32 col = 0; col < s.seqlen_kv; ++col) {
      const Role role = raster.col_roles[static_cast<std::size_t>(col)];
      const Cell cell = raster.roles && role != Role::padding ? cell_of(role) : Cell::seen;
      raster.cells.push_back(visible(s, view.head, row, col) ? cell : Cell::hidden);
    }
  }
  return raster;
}

TileGrid tile_grid(const MaskView& view) {
  const Sequence& s = view.sequence;
  TileGrid grid{view.tile_m, view.tile_n, ceil_div(s.seqlen_q, view.tile_m), ceil_div(s.seqlen_kv, view.tile_n), {}, {}};
  grid.lists = given(s.blocks) && s.blocks.block_m == view.tile_m && s.blocks.block_n == view.tile_n;
  for (i32 row = 0; row < grid.rows; ++row)
    for (i32 col = 0; col < grid.cols; ++col) grid.tiles.push_back(tile_at(view, grid.lists, row, col));
  return grid;
}

std::string mask_text(const MaskView& view, const Terminal& terminal) {
  const MaskRaster raster = mask_raster(view);
  const TileGrid tiles = tile_grid(view);
  const int room = std::max(terminal.columns - kGutter - 1, 8);
  // A character is about twice as high as wide: two columns a key where they fit; in colour a half block holds two rows.
  // Two screens of rows at most.
  const int step = std::max({ceil_div(raster.cols, room), ceil_div(raster.rows, 4 * std::max(terminal.lines, 24)), 1});
  const int repeat = !terminal.colours && step == 1 && raster.cols * 2 <= room ? 2 : 1;
  const int half = terminal.colours ? step : 0, lines = repeat == 2 || (!terminal.colours && step == 1) ? step : 2 * step;

  std::string out;
  for (i32 row = 0, line = 0; row < raster.rows; row += lines, ++line) {
    const i32 row_end = min_of(row + lines, raster.rows);
    out += gutter(raster, row, row_end, line % 10 == 0);
    for (i32 col = 0; col < raster.cols; col += step) {
      const i32 col_end = min_of(col + step, raster.cols);
      if (terminal.colours) {
        const i32 middle = min_of(row + half, row_end);
        const Block upper = block_of(raster, row, middle, col, col_end),
                    lower = block_of(raster, middle, row_end, col, col_end);
        out += paint(upper.cell, upper.whole, lower.cell, lower.whole);
      } else {
        for (int n = 0; n < repeat; ++n) out += swatch(block_of(raster, row, row_end, col, col_end).cell).solid;
      }
    }
    out += terminal.colours ? "\033[0m\n" : "\n";
  }
  out += fmt::format("\n{}", tile_map(tiles, terminal));
  out += "\nrows: queries, columns: keys; seen: ";
  for (const Swatch& s : legend(raster)) {
    out += terminal.colours ? fmt::format("\033[38;2;{};{};{}m\u2588\u2588\033[0m", s.dark.r, s.dark.g, s.dark.b)
                            : std::string(s.solid);
    out += fmt::format(" {}  ", s.title);
  }
  out += fmt::format("\ntiles: \u2588\u2588 full  \u2592\u2592 {}{}  \u00b7\u00b7 skipped", partial_name(tiles),
                     tiles.lists ? "  \u2572\u2572 diag" : "");
  if (step > 1) out += fmt::format("; scaled down: one character is {} keys x {} rows", step, lines);
  return out + "\n" + summary(raster, tiles) + "\n";
}

std::string mask_svg(const MaskView& view) {
  const MaskRaster raster = mask_raster(view);
  const TileGrid tiles = tile_grid(view);
  const double cell = std::clamp(560.0 / std::max({raster.rows, raster.cols, 1}), 0.05, 26.0);
  constexpr int kLeft = 96, kTop = 62, kLegend = 72;
  const double width = raster.cols * cell, height = raster.rows * cell;
  const double total_width = std::max(kLeft + width + 24, 620.0), total_height = kTop + height + kLegend;

  std::string out = fmt::format(
      "<svg class=\"mask\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\" "
      "role=\"img\">\n"
      "<title>What each query row sees: {2}</title>\n",
      total_width, total_height, summary(raster, tiles));
  out += svg_style(raster);
  out += fmt::format("<text class=\"ink\" x=\"{:g}\" y=\"20\" text-anchor=\"middle\">keys</text>\n", kLeft + width / 2);
  out += fmt::format(
      "<text class=\"ink\" transform=\"translate(16 {:g}) rotate(-90)\" text-anchor=\"middle\">query rows</text>\n",
      kTop + height / 2);
  out += svg_axes(raster, cell, kLeft, kTop);
  out += fmt::format("<g id=\"cells\" transform=\"translate({} {}) scale({:g})\" shape-rendering=\"crispEdges\">\n", kLeft,
                     kTop, cell);
  out += fmt::format("<rect class=\"hidden\" x=\"0\" y=\"0\" width=\"{}\" height=\"{}\"/>\n", raster.cols, raster.rows);
  out += svg_cells(raster) + "</g>\n";

  std::string grid, border;
  if (cell >= 6) {
    for (i32 n = 1; n < raster.cols; ++n) grid += fmt::format("M{:g} {}v{:g}", kLeft + n * cell, kTop, height);
    for (i32 n = 1; n < raster.rows; ++n) grid += fmt::format("M{} {:g}h{:g}", kLeft, kTop + n * cell, width);
    out += fmt::format("<path class=\"grid\" d=\"{}\"/>\n", grid);
  }
  // Skipped tiles get no border: what stands out is the work that is done.
  for (i32 row = 0; row < tiles.rows; ++row)
    for (i32 col = 0; col < tiles.cols; ++col) {
      const Tile tile = tiles.at(row, col);
      if (tile == Tile::skipped) continue;
      border += svg_tile(tile, kLeft + col * tiles.tile_n * cell, kTop + row * tiles.tile_m * cell,
                         (min_of((col + 1) * tiles.tile_n, raster.cols) - col * tiles.tile_n) * cell,
                         (min_of((row + 1) * tiles.tile_m, raster.rows) - row * tiles.tile_m) * cell) +
                "\n";
    }
  out += border;
  out += svg_legend(raster, tiles, kTop + height + 26);
  return out + fmt::format("<text class=\"ink small\" x=\"12\" y=\"{:g}\">{}</text>\n</svg>\n", kTop + height + 52,
                           summary(raster, tiles));
}

PictureGeometry picture_geometry(i32 rows, i32 cols) {
  const int scale = std::clamp(768 / std::max({rows, cols, 1}), 1, 28);
  return {scale, 12};
}

Image mask_image(const MaskView& view) {
  const MaskRaster raster = mask_raster(view);
  const TileGrid tiles = tile_grid(view);
  const PictureGeometry at = picture_geometry(raster.rows, raster.cols);
  constexpr Rgb kPaper{255, 255, 255}, kInk{0x22, 0x22, 0x22};
  Image image(at.x(raster.cols) + at.margin, at.y(raster.rows) + at.margin, kPaper);

  const int gap = at.scale >= 6 ? 1 : 0;  // a line of paper between cells
  for (i32 col = 0; col < raster.cols && raster.roles; ++col)
    image.fill(at.x(col), 2, at.scale - gap, 6, role_colour(raster.col_roles[static_cast<std::size_t>(col)]));
  for (i32 row = 0; row < raster.rows; ++row) {
    if (raster.roles)
      image.fill(2, at.y(row), 6, at.scale - gap, role_colour(raster.row_roles[static_cast<std::size_t>(row)]));
    for (i32 col = 0; col < raster.cols; ++col)
      image.fill(at.x(col), at.y(row), at.scale - gap, at.scale - gap, cell_colour(raster.at(row, col)));
  }
  if (gap == 0 && !tiles.lists) return image;  // too small for tile borders
  for (i32 row = 0; row < tiles.rows; ++row)
    for (i32 col = 0; col < tiles.cols; ++col) {
      const Tile tile = tiles.at(row, col);
      if (tile == Tile::skipped) continue;
      const int x0 = at.x(col * tiles.tile_n) - 1, x1 = at.x(min_of((col + 1) * tiles.tile_n, raster.cols)) - 1;
      const int y0 = at.y(row * tiles.tile_m) - 1, y1 = at.y(min_of((row + 1) * tiles.tile_m, raster.rows)) - 1;
      // Partial tiles are dashed, full and diagonal ones solid.
      const int period = tile == Tile::partial ? 8 : 1;
      for (int x = x0; x <= x1; ++x)
        if ((x - x0) % period < (period + 1) / 2) image.fill(x, y0, 1, 1, kInk), image.fill(x, y1, 1, 1, kInk);
      for (int y = y0; y <= y1; ++y)
        if ((y - y0) % period < (period + 1) / 2) image.fill(x0, y, 1, 1, kInk), image.fill(x1, y, 1, 1, kInk);
    }
  return image;
}

}  // namespace iso::tool
