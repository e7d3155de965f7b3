// Where an instruction stands in a kernel: every emulated instruction takes a Location as its last, defaulted argument.
#pragma once

#include <string>

namespace iso::emu {

struct Location {
  const char* file = "";
  int line = 0;

  static constexpr Location here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool operator==(const Location&) const = default;
};

// "gemm.h:39": the file without its folders.
std::string name(Location at);

}  // namespace iso::emu
