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
constexpr std::array<Swatch, 4> kSwatches{{
    {"hidden", "not seen", "\u00b7", {0xf2, 0xf2, 0xf2}, {0x26, 0x26, 0x2a}},
    {"context", "context", "\u2593", {0xe6, 0x9f, 0x00}, {0xe6, 0x9f, 0x00}},
    {"history", "history", "\u2592", {0x56, 0xb4, 0xe9}, {0x3d, 0x8f, 0xc4}},
    {"candidate", "own candidate group", "\u2588", {0x00, 0x9e, 0x73}, {0x1f, 0xb8, 0x8c}},
}};
constexpr Rgb kPadding{0xbb, 0xbb, 0xbb};

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

// One line of counts that ends every picture in words.
std::string summary(const MaskRaster& raster, const TileGrid& tiles) {
  const i64 full = tiles.count(TileClass::full), partial = tiles.count(TileClass::partial);
  const i64 all = static_cast<i64>(raster.rows) * raster.cols, grid = static_cast<i64>(tiles.rows) * tiles.cols;
  const i64 pairs = raster.visible_pairs();
  return fmt::format("{} of {} pairs visible ({:.1f} %); tiles {}x{}: {} full, {} partial, {} skipped", pairs, all,
                     all ? 100.0 * pairs / all : 0.0, tiles.tile_m, tiles.tile_n, full, partial, grid - full - partial);
}

// The colour or character of a block of cells [row, row_end) x [col, col_end): the role it shows most, and whether it is
// seen whole. One visible pair is enough to show: the candidates' diagonal is thin and must not vanish when scaled down.
struct Block {
  Cell cell = Cell::hidden;
  bool whole = false;
};
Block block_of(const MaskRaster& raster, i32 row, i32 row_end, i32 col, i32 col_end) {
  std::array<i64, 4> counts{};
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
      const TileClass c = tiles.at(row, col);
      out += c == TileClass::full ? "\u2588\u2588" : c == TileClass::partial ? "\u2592\u2592" : "\u00b7\u00b7";
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
std::string svg_style() {
  const auto rules = [](bool dark) {
    std::string css = dark ? ".mask .ink{fill:#e6e6e6}.mask .line{stroke:#e6e6e6}.mask .grid{stroke:#3a3a40}"
                           : ".mask .ink{fill:#222}.mask .line{stroke:#222}.mask .grid{stroke:#fff}";
    for (const Swatch& s : kSwatches) css += fmt::format(".mask .{}{{fill:{}}}", s.css, hex(dark ? s.dark : s.light));
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

}  // namespace

i64 MaskRaster::visible_pairs() const {
  return static_cast<i64>(cells.size()) - std::count(cells.begin(), cells.end(), Cell::hidden);
}

i64 TileGrid::count(TileClass wanted) const { return std::count(classes.begin(), classes.end(), wanted); }

Rgb cell_colour(Cell cell) { return swatch(cell).light; }

MaskRaster mask_raster(const MaskSpec& mask, i32 seqlen_q) {
  MaskRaster raster{seqlen_q, mask.seqlen_kv, {}, {}, {}};
  raster.cells.reserve(static_cast<std::size_t>(seqlen_q) * mask.seqlen_kv);
  for (i32 col = 0; col < mask.seqlen_kv; ++col) raster.col_roles.push_back(role_at(mask, col));
  for (i32 row = 0; row < seqlen_q; ++row) {
    const i32 position = row + mask.query_offset;
    raster.row_roles.push_back(role_at(mask, position));
    for (i32 col = 0; col < mask.seqlen_kv; ++col)
      raster.cells.push_back(visible(mask, position, col) ? cell_of(raster.col_roles[col]) : Cell::hidden);
  }
  return raster;
}

TileGrid tile_grid(const MaskSpec& mask, i32 seqlen_q, i32 tile_m, i32 tile_n) {
  TileGrid grid{tile_m, tile_n, ceil_div(seqlen_q, tile_m), ceil_div(mask.seqlen_kv, tile_n), {}};
  for (i32 row = 0; row < grid.rows; ++row) {
    const Interval queries{mask.query_offset + row * tile_m, mask.query_offset + min_of((row + 1) * tile_m, seqlen_q)};
    for (i32 col = 0; col < grid.cols; ++col)
      grid.classes.push_back(classify_tile(mask, queries, {col * tile_n, min_of((col + 1) * tile_n, mask.seqlen_kv)}));
  }
  return grid;
}

std::string mask_text(const MaskSpec& mask, i32 seqlen_q, int tile_m, int tile_n, const Terminal& terminal) {
  const MaskRaster raster = mask_raster(mask, seqlen_q);
  const TileGrid tiles = tile_grid(mask, seqlen_q, tile_m, tile_n);
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
  for (const Swatch& s : kSwatches) {
    out += terminal.colours ? fmt::format("\033[38;2;{};{};{}m\u2588\u2588\033[0m", s.dark.r, s.dark.g, s.dark.b)
                            : std::string(s.solid);
    out += fmt::format(" {}  ", s.title);
  }
  out += fmt::format("\ntiles: \u2588\u2588 full  \u2592\u2592 partial  \u00b7\u00b7 skipped");
  if (step > 1) out += fmt::format("; scaled down: one character is {} keys x {} rows", step, lines);
  return out + "\n" + summary(raster, tiles) + "\n";
}

std::string mask_svg(const MaskSpec& mask, i32 seqlen_q, int tile_m, int tile_n) {
  const MaskRaster raster = mask_raster(mask, seqlen_q);
  const TileGrid tiles = tile_grid(mask, seqlen_q, tile_m, tile_n);
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
  out += svg_style();
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
      const TileClass c = tiles.at(row, col);
      if (c == TileClass::skip) continue;
      border += fmt::format("<rect class=\"line\" x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"{}/>\n",
                            kLeft + col * tile_n * cell, kTop + row * tile_m * cell,
                            (min_of((col + 1) * tile_n, raster.cols) - col * tile_n) * cell,
                            (min_of((row + 1) * tile_m, raster.rows) - row * tile_m) * cell,
                            c == TileClass::partial ? " stroke-dasharray=\"4 3\"" : "");
    }
  out += border;

  double x = 12;
  const double y = kTop + height + 26;
  for (const Swatch& s : kSwatches) {
    out += fmt::format("<rect class=\"{}\" x=\"{:g}\" y=\"{:g}\" width=\"14\" height=\"14\"/>", s.css, x, y - 11);
    out += fmt::format("<text class=\"ink small\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", x + 19, y, s.title);
    x += 40 + 6.4 * std::char_traits<char>::length(s.title);
  }
  for (const bool dashed : {false, true}) {
    out += fmt::format("<rect class=\"line\" x=\"{:g}\" y=\"{:g}\" width=\"14\" height=\"14\"{}/>", x, y - 11,
                       dashed ? " stroke-dasharray=\"4 3\"" : "");
    out += fmt::format("<text class=\"ink small\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", x + 19, y,
                       dashed ? "partial tile" : "full tile");
    x += dashed ? 0 : 86;
  }
  out += fmt::format("<text class=\"ink small\" x=\"12\" y=\"{:g}\">{}</text>\n</svg>\n", y + 26, summary(raster, tiles));
  return out;
}

PictureGeometry picture_geometry(i32 rows, i32 cols) {
  const int scale = std::clamp(768 / std::max({rows, cols, 1}), 1, 28);
  return {scale, 12};
}

Image mask_image(const MaskSpec& mask, i32 seqlen_q, int tile_m, int tile_n) {
  const MaskRaster raster = mask_raster(mask, seqlen_q);
  const TileGrid tiles = tile_grid(mask, seqlen_q, tile_m, tile_n);
  const PictureGeometry at = picture_geometry(raster.rows, raster.cols);
  constexpr Rgb kPaper{255, 255, 255}, kInk{0x22, 0x22, 0x22};
  Image image(at.x(raster.cols) + at.margin, at.y(raster.rows) + at.margin, kPaper);

  const int gap = at.scale >= 6 ? 1 : 0;  // a line of paper between cells
  for (i32 col = 0; col < raster.cols; ++col)
    image.fill(at.x(col), 2, at.scale - gap, 6, role_colour(raster.col_roles[col]));
  for (i32 row = 0; row < raster.rows; ++row) {
    image.fill(2, at.y(row), 6, at.scale - gap, role_colour(raster.row_roles[row]));
    for (i32 col = 0; col < raster.cols; ++col)
      image.fill(at.x(col), at.y(row), at.scale - gap, at.scale - gap, cell_colour(raster.at(row, col)));
  }
  if (gap == 0) return image;  // too small for tile borders
  for (i32 row = 0; row < tiles.rows; ++row)
    for (i32 col = 0; col < tiles.cols; ++col) {
      if (tiles.at(row, col) == TileClass::skip) continue;
      const int x0 = at.x(col * tile_n) - 1, x1 = at.x(min_of((col + 1) * tile_n, raster.cols)) - 1;
      const int y0 = at.y(row * tile_m) - 1, y1 = at.y(min_of((row + 1) * tile_m, raster.rows)) - 1;
      // Partial tiles are dashed, full ones solid.
      const int period = tiles.at(row, col) == TileClass::full ? 1 : 8;
      for (int x = x0; x <= x1; ++x)
        if ((x - x0) % period < (period + 1) / 2) image.fill(x, y0, 1, 1, kInk), image.fill(x, y1, 1, 1, kInk);
      for (int y = y0; y <= y1; ++y)
        if ((y - y0) % period < (period + 1) / 2) image.fill(x0, y, 1, 1, kInk), image.fill(x1, y, 1, 1, kInk);
    }
  return image;
}

}  // namespace iso::tool
