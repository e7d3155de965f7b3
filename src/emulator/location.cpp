#include "emulator/location.h"

#include <cstring>

namespace iso::emu {

std::string name(Location at) {
  const char* slash = std::strrchr(at.file, '/');
  return std::string(slash ? slash + 1 : at.file) + ":" + std::to_string(at.line);
}

}  // namespace iso::emu
