// What the commands need to know about the terminal: its size, whether it takes colours, and how to wrap text for it.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace iso::tool {

struct Terminal {
  bool interactive = false;  // a terminal, not a pipe or a file
  bool colours = false;      // interactive, TERM is not dumb, and NO_COLOR is not set
  int columns = 80;
  int lines = 24;
};

// Of stdout or stderr. COLUMNS in the environment overrides the width.
Terminal terminal_of(std::FILE* stream);

// Lines of at most `width` columns, broken at blanks; a word longer than that keeps a line of its own. Line breaks in
// `text` are kept, and so is the indentation of each of its lines. `indent` is put before every line and counts.
std::vector<std::string> wrap(std::string_view text, int width, const std::string& indent = {});

// `text` in bold (or dim) if the terminal takes colours.
std::string bold(const Terminal& terminal, const std::string& text);
std::string dim(const Terminal& terminal, const std::string& text);

// One line on stderr that is rewritten in place; silent unless stderr is a terminal. Cleared when it goes out of scope.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& state);
  void clear();

 private:
  std::string what_;
  bool shown_ = false;
  Terminal terminal_;
};

}  // namespace iso::tool
