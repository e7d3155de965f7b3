#include "png_file.h"

#include <algorithm>

#include <png.h>

#include "commands.h"
#include "write_file.h"

namespace iso::tool {

static_assert(sizeof(Rgb) == 3, "PNG_FORMAT_RGB rows are written straight from Image::pixels");

void Image::fill(int x, int y, int w, int h, Rgb colour) {
  for (int row = std::max(y, 0); row < std::min(y + h, height); ++row)
    for (int column = std::max(x, 0); column < std::min(x + w, width); ++column) at(column, row) = colour;
}

void write_png(const std::string& path, const Image& image) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  // Through memory: libpng's own file writer removes the file if it fails.
  png_alloc_size_t size = 0;
  std::string bytes;
  bool good = png_image_write_to_memory(&header, nullptr, &size, 0, image.pixels.data(), 0, nullptr);
  bytes.resize(size);
  good = good && png_image_write_to_memory(&header, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr);
  if (!good) throw UsageError("cannot make the picture " + path + ": " + header.message, "draw a smaller one");
  write_file(path, bytes);
}

Image read_png(const std::string& path) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_file(&header, path.c_str()))
    throw UsageError("cannot read " + path + ": " + header.message);
  header.format = PNG_FORMAT_RGB;
  Image image(static_cast<int>(header.width), static_cast<int>(header.height), Rgb{});
  if (!png_image_finish_read(&header, nullptr, image.pixels.data(), 0, nullptr)) {
    const std::string message = header.message;
    png_image_free(&header);
    throw UsageError("cannot read " + path + ": " + message);
  }
  return image;
}

}  // namespace iso::tool
