#include "terminal.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

namespace iso::tool {

Terminal terminal_of(std::FILE* stream) {
  Terminal terminal;
  const int fd = fileno(stream);
  terminal.interactive = isatty(fd) != 0;
  winsize size{};
  if (terminal.interactive && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
    terminal.lines = size.ws_row;
  }
  if (const char* columns = std::getenv("COLUMNS"); columns && std::atoi(columns) > 0)
    terminal.columns = std::atoi(columns);
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");  // https://no-color.org: set and not empty
  terminal.colours = terminal.interactive && term && std::strcmp(term, "dumb") != 0 && !(no_colour && *no_colour);
  return terminal;
}

std::vector<std::string> wrap(std::string_view text, int width, const std::string& indent) {
  std::vector<std::string> lines;
  while (true) {
    const std::size_t line_end = text.find('\n');
    std::string_view rest = text.substr(0, line_end);
    const std::size_t first_word = rest.find_first_not_of(' ');
    const std::string lead = indent + std::string(first_word == std::string_view::npos ? 0 : first_word, ' ');
    std::string line;
    while (true) {
      const std::size_t begin = rest.find_first_not_of(' ');
      if (begin == std::string_view::npos) break;
      const std::size_t end = std::min(rest.find(' ', begin), rest.size());
      const std::string_view word = rest.substr(begin, end - begin);
      rest.remove_prefix(end);
      if (!line.empty() && line.size() + 1 + word.size() > static_cast<std::size_t>(width)) {
        lines.push_back(line);
        line.clear();
      }
      line += line.empty() ? lead : " ";
      line += word;
    }
    lines.push_back(line);
    if (line_end == std::string_view::npos) return lines;
    text.remove_prefix(line_end + 1);
  }
}

std::string bold(const Terminal& terminal, const std::string& text) {
  return terminal.colours ? "\033[1m" + text + "\033[0m" : text;
}

std::string dim(const Terminal& terminal, const std::string& text) {
  return terminal.colours ? "\033[2m" + text + "\033[0m" : text;
}

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(terminal_of(stderr)) {}

void Progress::show(const std::string& state) {
  if (!terminal_.interactive) return;
  std::string line = what_ + ": " + state;
  if (static_cast<int>(line.size()) >= terminal_.columns) line.resize(terminal_.columns - 1);
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  shown_ = true;
}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (!std::exchange(shown_, false)) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace iso::tool
