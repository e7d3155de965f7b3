#include "chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace iso::tool {
namespace {

// Okabe-Ito colours, told apart with any colour vision.
constexpr const char* kColours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7"};

// The smallest 1, 2 or 5 times a power of ten that cuts `range` into at most six parts.
double tick_step(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(range / 6)));
  for (const double step : {power, 2 * power, 5 * power})
    if (range / step <= 6) return step;
  return 10 * power;
}

}  // namespace

std::string xml_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string chart_svg(const Chart& chart) {
  constexpr int kBar = 16, kPitch = 24, kTop = 64, kPlot = 420, kNote = 190;
  double top = 1e-9;
  std::size_t label_length = 0;
  for (const Bar& bar : chart.bars) {
    top = std::max({top, bar.value, bar.limit});
    label_length = std::max(label_length, bar.label.size());
  }
  const int left = 24 + static_cast<int>(label_length * 7);
  const int height = kTop + kPitch * static_cast<int>(chart.bars.size()) + 40, width = left + kPlot + kNote;
  const double scale = kPlot / top;

  std::string out = fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\">\n"
      "<title>{2}</title>\n"
      "<style>.chart text{{font:12px system-ui,sans-serif;fill:#222}}.chart .axis,.chart .limit{{stroke:#222}}"
      ".chart .tick{{stroke:#ddd}}@media(prefers-color-scheme:dark){{.chart text{{fill:#e6e6e6}}"
      ".chart .axis,.chart .limit{{stroke:#e6e6e6}}.chart .tick{{stroke:#444}}}}</style>\n"
      "<text x=\"12\" y=\"22\" style=\"font-size:15px\">{2}</text>\n",
      width, height, xml_escaped(chart.title));

  double x = 12;
  for (std::size_t n = 0; n < chart.series.size(); ++n) {
    out += fmt::format(
        "<rect x=\"{:g}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:g}\" y=\"44\">{}</text>\n", x,
        kColours[n % 4], x + 17, xml_escaped(chart.series[n]));
    x += 40 + 7.0 * chart.series[n].size();
  }
  if (!chart.limit_name.empty())
    out += fmt::format("<path class=\"limit\" stroke-width=\"2\" d=\"M{:g} 33v14\"/><text x=\"{:g}\" y=\"44\">{}</text>\n",
                       x + 6, x + 17, xml_escaped(chart.limit_name));

  const int bottom = height - 34;
  for (double tick = 0, step = tick_step(top); tick <= top * 1.0001; tick += step)
    out += fmt::format(
        "<path class=\"tick\" d=\"M{0:g} {1}V{2}\"/><text x=\"{0:g}\" y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
        left + tick * scale, kTop - 8, bottom, bottom + 16, tick);
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", left + kPlot + kNote - 12, bottom + 16,
                     xml_escaped(chart.unit));

  int y = kTop;
  for (const Bar& bar : chart.bars) {
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", left - 8, y + 12, xml_escaped(bar.label));
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>", left, y, bar.value * scale,
                       kBar, kColours[bar.series % 4]);
    if (bar.limit > 0)
      out += fmt::format("<path class=\"limit\" stroke-width=\"2\" d=\"M{:.1f} {}v{}\"/>", left + bar.limit * scale, y - 2,
                         kBar + 4);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", left + std::max(bar.value, bar.limit) * scale + 7, y + 12,
                       xml_escaped(bar.note));
    y += kPitch;
  }
  return out + fmt::format("<path class=\"axis\" d=\"M{} {}V{}\"/>\n</svg>\n", left, kTop - 8, bottom);
}

}  // namespace iso::tool
