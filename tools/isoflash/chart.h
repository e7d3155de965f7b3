// Horizontal bar charts as self-contained SVG, readable on light and dark pages.
#pragma once

#include <string>
#include <vector>

namespace iso::tool {

struct Bar {
  std::string label;
  double value = 0;
  double limit = 0;  // drawn as a mark; 0: none
  std::string note;  // after the value
  int series = 0;    // colour, 0 to 3
};

struct Chart {
  std::string title, unit, limit_name;
  std::vector<std::string> series;  // names for the legend
  std::vector<Bar> bars;
};

std::string chart_svg(const Chart& chart);

// Text with the characters that XML reserves replaced.
std::string xml_escaped(const std::string& text);

}  // namespace iso::tool
