// PNG files from RGB pixels, through libpng's simplified interface.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace iso::tool {

struct Rgb {
  std::uint8_t r = 0, g = 0, b = 0;
  friend bool operator==(const Rgb&, const Rgb&) = default;
};

struct Image {
  int width = 0, height = 0;
  std::vector<Rgb> pixels;  // row by row from the top

  Image(int w, int h, Rgb fill) : width(w), height(h), pixels(static_cast<std::size_t>(w) * h, fill) {}
  Rgb& at(int x, int y) { return pixels[static_cast<std::size_t>(y) * width + x]; }
  const Rgb& at(int x, int y) const { return pixels[static_cast<std::size_t>(y) * width + x]; }
  // Fills the part of the rectangle that lies inside the image.
  void fill(int x, int y, int w, int h, Rgb colour);
};

// Throws UsageError if the file cannot be written or read.
void write_png(const std::string& path, const Image& image);
Image read_png(const std::string& path);

}  // namespace iso::tool
