// Every picture of a mask equals visible() and classify_tile(), cell by cell.
#include "mask_picture.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/mask.h"

namespace iso::tool {
namespace {

struct Drawn {
  MaskSpec mask;
  i32 seqlen_q = 0;
};

// Masks with every part present or absent, padding inside the history and behind the candidates, Sq != Sk.
Drawn arbitrary_mask() {
  const auto up_to = [](int limit) { return *rc::gen::inRange(0, limit + 1); };
  MaskSpec m;
  m.context_end = up_to(3);
  m.history_end_slot = m.context_end + up_to(14);
  m.history_begin = m.context_end + up_to(m.history_end_slot - m.context_end);
  m.history_end = m.history_begin + up_to(m.history_end_slot - m.history_begin);
  m.candidate_begin = m.history_end_slot + up_to(2);
  m.candidate_end = m.candidate_begin + up_to(9);
  m.candidate_group_size = 1 + up_to(3);
  m.seqlen_kv = m.candidate_end + up_to(2);
  m.history_kind = static_cast<HistoryKind>(up_to(2));
  m.window_left = up_to(5);
  m.window_right = up_to(5);
  const i32 seqlen_q = 1 + up_to(24);
  m.query_offset = m.seqlen_kv - seqlen_q;
  return {m, seqlen_q};
}

Cell expected_cell(const MaskSpec& m, i32 row, i32 col) {
  if (!visible(m, row + m.query_offset, col)) return Cell::hidden;
  switch (role_at(m, col)) {
    case Role::context: return Cell::context;
    case Role::history: return Cell::history;
    case Role::candidate: return Cell::candidate;
    case Role::padding: break;
  }
  return Cell::hidden;
}

MaskSpec ranker_mask(i32 group_size) {
  MaskSpec m;
  m.context_end = 2;
  m.history_begin = 2;
  m.history_end = m.history_end_slot = m.candidate_begin = 12;
  m.candidate_end = m.seqlen_kv = 18;
  m.candidate_group_size = group_size;
  return m;
}

RC_GTEST_PROP(MaskPicture, RasterEqualsVisible, ()) {
  const auto [m, seqlen_q] = arbitrary_mask();
  const MaskRaster raster = mask_raster(view_of(m, seqlen_q, 4, 4));
  i64 pairs = 0;
  for (i32 row = 0; row < seqlen_q; ++row)
    for (i32 col = 0; col < m.seqlen_kv; ++col) {
      RC_ASSERT(raster.at(row, col) == expected_cell(m, row, col));
      pairs += visible(m, row + m.query_offset, col);
    }
  RC_ASSERT(raster.visible_pairs() == pairs);
}

RC_GTEST_PROP(MaskPicture, TilesEqualVisible, ()) {
  const auto [m, seqlen_q] = arbitrary_mask();
  const i32 tile_m = 1 + *rc::gen::inRange(0, 7), tile_n = 1 + *rc::gen::inRange(0, 7);
  const TileGrid tiles = tile_grid(view_of(m, seqlen_q, tile_m, tile_n));
  for (i32 row = 0; row < tiles.rows; ++row)
    for (i32 col = 0; col < tiles.cols; ++col) {
      i64 seen = 0, all = 0;
      for (i32 r = row * tile_m; r < std::min((row + 1) * tile_m, seqlen_q); ++r)
        for (i32 c = col * tile_n; c < std::min((col + 1) * tile_n, m.seqlen_kv); ++c) {
          seen += visible(m, r + m.query_offset, c);
          ++all;
        }
      const Tile expected = seen == 0 ? Tile::skipped : seen == all ? Tile::full : Tile::partial;
      RC_ASSERT(tiles.at(row, col) == expected);
    }
}

// The rectangles of the SVG's cells, painted in order, give the raster.
RC_GTEST_PROP(MaskPicture, SvgEqualsVisible, ()) {
  const auto [m, seqlen_q] = arbitrary_mask();
  if (m.seqlen_kv == 0) return;
  const std::string svg = mask_svg(view_of(m, seqlen_q, 4, 4));
  const std::size_t begin = svg.find("<g id=\"cells\""), end = svg.find("</g>", begin);
  RC_ASSERT(begin != std::string::npos && end != std::string::npos);
  const std::string cells = svg.substr(begin, end - begin);
  std::vector<std::string> painted(static_cast<std::size_t>(seqlen_q) * m.seqlen_kv);
  static const std::regex rect("<rect class=\"(\\w+)\" x=\"(\\d+)\" y=\"(\\d+)\" width=\"(\\d+)\" height=\"(\\d+)\"/>");
  for (std::sregex_iterator it(cells.begin(), cells.end(), rect); it != std::sregex_iterator(); ++it) {
    const int x = std::stoi((*it)[2]), y = std::stoi((*it)[3]), width = std::stoi((*it)[4]), height = std::stoi((*it)[5]);
    RC_ASSERT(x + width <= m.seqlen_kv && y + height <= seqlen_q);
    for (int row = y; row < y + height; ++row)
      for (int col = x; col < x + width; ++col) painted[static_cast<std::size_t>(row) * m.seqlen_kv + col] = (*it)[1];
  }
  const char* const names[] = {"hidden", "context", "history", "candidate"};
  for (i32 row = 0; row < seqlen_q; ++row)
    for (i32 col = 0; col < m.seqlen_kv; ++col)
      RC_ASSERT(painted[static_cast<std::size_t>(row) * m.seqlen_kv + col] ==
                names[static_cast<int>(expected_cell(m, row, col))]);
}

// Two query blocks of lists over a mask without parts: block 0 sees block 0 by its diagonal and block 1 whole, block 1 sees
// block 0 by the mask.
struct ListsView {
  std::vector<i64> begin{0, 2, 3};
  std::vector<BlockEntry> entries{{0, BlockKind::diag}, {1, BlockKind::full}, {0, BlockKind::mask}};
  MaskView view;

  ListsView() {
    MaskSpec m;
    m.seqlen_kv = m.history_end = m.history_end_slot = m.candidate_begin = m.candidate_end = 100;
    view = view_of(m, 100, 64, 64);
    view.sequence.blocks = {.block_m = 64, .block_n = 64, .begin = begin.data(), .entries = entries.data()};
  }
};

TEST(MaskPicture, ListsShowTheirKinds) {
  const ListsView lists;
  const TileGrid tiles = tile_grid(lists.view);
  EXPECT_TRUE(tiles.lists);
  EXPECT_EQ(tiles.tiles, (std::vector<Tile>{Tile::diag, Tile::full, Tile::partial, Tile::skipped}));
  const MaskRaster raster = mask_raster(lists.view);
  EXPECT_FALSE(raster.roles);
  for (i32 row = 0; row < 100; ++row)
    for (i32 col = 0; col < 100; ++col)
      ASSERT_EQ(raster.at(row, col) == Cell::seen, visible(lists.view.sequence, 0, row, col)) << row << " " << col;
  const std::string words = "1 full, 1 mask, 1 diag, 1 skipped";
  EXPECT_NE(mask_text(lists.view, Terminal{}).find(words), std::string::npos);
  EXPECT_NE(mask_svg(lists.view).find(words), std::string::npos);
  EXPECT_GT(mask_image(lists.view).width, 100);
}

TEST(MaskPicture, TilesOfAnotherSizeCountWhatIsSeen) {
  ListsView lists;
  lists.view.tile_m = lists.view.tile_n = 50;
  const TileGrid tiles = tile_grid(lists.view);
  EXPECT_FALSE(tiles.lists);
  EXPECT_EQ(tiles.tiles, (std::vector<Tile>{Tile::partial, Tile::partial, Tile::partial, Tile::partial}));
}

TEST(MaskPicture, IntervalsAreSeen) {
  const i32 pairs[] = {0, 2, 1, 4, 3, 3};
  MaskSpec m;
  m.seqlen_kv = m.history_end = m.history_end_slot = m.candidate_begin = m.candidate_end = 4;
  MaskView view = view_of(m, 3, 2, 2);
  view.sequence.intervals = {.data = pairs, .stride_head = 0, .stride_row = 2, .count = 1};
  const MaskRaster raster = mask_raster(view);
  EXPECT_EQ(raster.visible_pairs(), 5);
  EXPECT_EQ(raster.at(1, 3), Cell::seen);
  EXPECT_EQ(tile_grid(view).tiles, (std::vector<Tile>{Tile::partial, Tile::partial, Tile::skipped, Tile::skipped}));
}

void expect_png_equals_visible(const MaskSpec& m, i32 seqlen_q) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "mask_picture_test.png").string();
  write_png(path, mask_image(view_of(m, seqlen_q, 4, 4)));
  const Image image = read_png(path);
  std::filesystem::remove(path);
  const PictureGeometry at = picture_geometry(seqlen_q, m.seqlen_kv);
  ASSERT_GE(image.width, at.x(m.seqlen_kv));
  ASSERT_GE(image.height, at.y(seqlen_q));
  for (i32 row = 0; row < seqlen_q; ++row)
    for (i32 col = 0; col < m.seqlen_kv; ++col)
      ASSERT_EQ(image.at(at.x(col) + at.scale / 2, at.y(row) + at.scale / 2), cell_colour(expected_cell(m, row, col)))
          << "query row " << row << ", key " << col << ": the PNG disagrees with visible(); look at mask_image()";
}

TEST(MaskPicture, PngEqualsVisible) {
  expect_png_equals_visible(ranker_mask(1), 18);
  expect_png_equals_visible(ranker_mask(2), 18);
  MaskSpec large = ranker_mask(3);  // one pixel a cell
  large.history_end = large.history_end_slot = large.candidate_begin = 900;
  large.candidate_end = large.seqlen_kv = 1000;
  large.history_kind = HistoryKind::causal;
  expect_png_equals_visible(large, 1000);
}

TEST(MaskPicture, ColoursTellCellsApart) {
  const Cell all[] = {Cell::hidden, Cell::context, Cell::history, Cell::candidate, Cell::seen};
  for (const Cell a : all)
    for (const Cell b : all) EXPECT_EQ(a == b, cell_colour(a) == cell_colour(b));
}

TEST(MaskPicture, PicturesOfTheDocsAreUpToDate) {
  const std::string folder = ISOFLASH_SOURCE_DIR "/docs/images/";
  for (const auto& [name, group_size] : {std::pair("mask", 1), std::pair("mask-groups", 2)}) {
    std::ifstream file(folder + name + ".svg");
    std::stringstream svg;
    svg << file.rdbuf();
    const std::string again = fmt::format(
        "run: isoflash mask --context 2 --history 10 --candidates 6 --group-size {} --tile 6x6 --svg docs/images/{}.svg "
        "--png "
        "docs/images/{}.png",
        group_size, name, name);
    EXPECT_EQ(svg.str(), mask_svg(view_of(ranker_mask(group_size), 18, 6, 6))) << again;
    const Image png = read_png(folder + name + ".png");
    EXPECT_EQ(png.pixels, mask_image(view_of(ranker_mask(group_size), 18, 6, 6)).pixels) << again;
  }
}

int columns_of(const std::string& line) {  // one column a UTF-8 character, colours left out
  int columns = 0;
  for (std::size_t n = 0; n < line.size(); ++n) {
    if (line[n] == '\033')
      n = line.find('m', n);
    else
      columns += (static_cast<unsigned char>(line[n]) & 0xc0) != 0x80;
  }
  return columns;
}

TEST(MaskPicture, TextFitsTheTerminalAndShowsTheDiagonal) {
  MaskSpec large = ranker_mask(1);
  large.history_end = large.history_end_slot = large.candidate_begin = 2000;
  large.candidate_end = large.seqlen_kv = 2064;
  for (const bool colours : {false, true}) {
    Terminal terminal;
    terminal.colours = colours;
    for (const MaskSpec& m : {ranker_mask(1), large}) {
      const std::string text = mask_text(view_of(m, m.seqlen_kv, 128, 128), terminal);
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        EXPECT_LE(columns_of(text.substr(begin, end - begin)), 100) << text.substr(begin, end - begin);
        begin = end + 1;
      }
      // The candidates' diagonal is one pair wide and must survive scaling: its block, whole or dimmed, is in the picture.
      const std::string picture = text.substr(0, text.find("tiles"));
      const std::string whole = colours ? ";2;31;184;140m" : "\u2588", dimmed = colours ? ";2;20;122;93m" : whole;
      EXPECT_TRUE(picture.find(whole) != std::string::npos || picture.find(dimmed) != std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace iso::tool
