#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "chart.h"
#include "demo_report.h"
#include "mask_picture.h"

namespace iso::tool {
namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --ink: #1b1b1f; --soft: #5d5d66; --line: #dcdce2; --card: #f6f6f8; --paper: #ffffff;
        --a: #0072b2; --b: #009e73; --c: #e69f00; --bad: #c0392b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf1; --soft: #a3a3ad; --line: #36363d; --card: #212126; --paper: #17171a;
          --a: #56b4e9; --b: #1fb88c; --c: #e6b24d; --bad: #ff7b6b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
       font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
p { margin: .4rem 0 .9rem; max-width: 44rem; } .soft, figcaption { color: var(--soft); font-size: .92rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .7rem; margin: 1.2rem 0; }
.card { background: var(--card); border-radius: .6rem; padding: .7rem .9rem; }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .85rem; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { width: 100%; max-width: 40rem; height: auto; display: block; }
figure.mask svg { min-width: 21rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .25rem .9rem .25rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 500; }
code, pre { font: .88rem/1.5 ui-monospace, monospace; background: var(--card); border-radius: .3rem; padding: .1rem .3rem; }
pre { padding: .8rem; overflow-x: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .soft { fill: var(--soft); }
.a { fill: var(--a); } .b { fill: var(--b); } .c { fill: var(--c); } .bad { fill: var(--bad); } .rest { fill: var(--line); }
.ok { color: var(--b); } .wrong { color: var(--bad); font-weight: 600; }
)css";

// 1234567 -> "1,234,567"
std::string grouped(i64 number) {
  std::string digits = std::to_string(number);
  for (std::size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, ",");
  return digits;
}

std::string card(const std::string& value, const std::string& label) {
  return fmt::format("<div class=card><b>{}</b><span>{}</span></div>\n", value, label);
}

std::string cards(const DemoReport& r) {
  const bool good = all_well(r.findings);
  return "<div class=cards>\n" + card(grouped(static_cast<i64>(r.sessions.size())), "users, one sequence each") +
         card(grouped(r.total_rows()), "rows, packed without padding") +
         card(fmt::format("{:.0f} ms", r.forward_seconds * 1e3),
              fmt::format("forward, {:.0f} useful GFLOP/s", r.forward_gflops)) +
         card(fmt::format("{:.0f} ms", r.backward_seconds * 1e3),
              fmt::format("backward, {:.0f} useful GFLOP/s", r.backward_gflops)) +
         card(good ? "verified" : "wrong", good ? "sampled rows, against float64" : "see the table below") + "</div>\n";
}

// Of the charts' view boxes: narrow, so that their words stay readable on a phone.
constexpr int kWidth = 460;

// Sequences by length, 32 rows a bar.
std::string length_histogram(const DemoReport& r) {
  constexpr i64 kBin = 32;
  constexpr int kHeight = 180, kBase = 150;
  std::vector<i64> counts;
  for (const auto& s : r.sessions) {
    const std::size_t bin = static_cast<std::size_t>(s.rows / kBin);
    if (bin >= counts.size()) counts.resize(bin + 1, 0);
    ++counts[bin];
  }
  const i64 most = *std::max_element(counts.begin(), counts.end());
  const double step = static_cast<double>(kWidth) / static_cast<double>(counts.size());
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role=img aria-label='Sequences by length'>\n", kWidth, kHeight);
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    const double height = 130.0 * static_cast<double>(counts[bin]) / static_cast<double>(most);
    svg += fmt::format(
        "<rect class=a x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}'><title>{} sequences of {} to {} "
        "rows</title></rect>\n",
        static_cast<double>(bin) * step + 1, kBase - height, std::max(step - 2, 1.0), height, counts[bin], bin * kBin,
        (bin + 1) * kBin - 1);
    const std::size_t every = std::max<std::size_t>(1, counts.size() / 8);
    if (bin % every == 0)
      svg += fmt::format("<text class=soft x='{:.1f}' y='{}'>{}</text>\n", static_cast<double>(bin) * step, kBase + 16,
                         bin * kBin);
  }
  return svg + fmt::format("<text class=soft x='{}' y='{}' text-anchor='end'>rows</text></svg>\n", kWidth, kBase + 29);
}

struct ShareBar {
  std::string label, value;
  double share = 0;  // of the longest
  const char* css = "a";
};

std::string bars(const std::vector<ShareBar>& all, const char* label) {
  constexpr int kRow = 44;
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role=img aria-label='{}'>\n", kWidth,
                                kRow * static_cast<int>(all.size()), label);
  int y = 0;
  for (const ShareBar& bar : all) {
    svg += fmt::format(
        "<text x='0' y='{}'>{}</text><text class=soft x='{}' y='{}' text-anchor='end'>{}</text>\n"
        "<rect class=rest x='0' y='{}' width='{}' height='14' rx='3'/><rect class={} x='0' y='{}' width='{:.1f}' "
        "height='14' rx='3'/>\n",
        y + 14, bar.label, kWidth, y + 14, bar.value, y + 20, kWidth, bar.css, y + 20, std::max(2.0, bar.share * kWidth));
    y += kRow;
  }
  return svg + "</svg>\n";
}

std::string work_bars(const DemoReport& r) {
  const double padded = static_cast<double>(r.padded_pairs), visible = static_cast<double>(r.visible_pairs);
  const auto bar = [&](const char* label, i64 pairs, const char* css) {
    return ShareBar{label, fmt::format("{} pairs, {:.2f} times", grouped(pairs), static_cast<double>(pairs) / visible),
                    static_cast<double>(pairs) / padded, css};
  };
  return bars({bar("visible: what the model means", r.visible_pairs, "b"),
               bar("packed, every sequence as a full rectangle", r.rectangle_pairs, "a"),
               bar("padded to the longest sequence", r.padded_pairs, "c")},
              "Work of three ways to compute the batch");
}

std::string tile_bar(const DemoReport& r) {
  const double all = static_cast<double>(r.tiles_full + r.tiles_partial + r.tiles_skipped);
  const double full = static_cast<double>(r.tiles_full) / all * kWidth,
               partial = static_cast<double>(r.tiles_partial) / all * kWidth;
  return fmt::format(
      "<svg viewBox='0 0 {} 44' role=img aria-label='Tile classes'><rect class=rest width='{}' height='18' rx='3'/>"
      "<rect class=b width='{:.1f}' height='18'/><rect class=c x='{:.1f}' width='{:.1f}' height='18'/>"
      "<text x='0' y='38'>{} full, {} partial, {} skipped (never loaded, never multiplied)</text></svg>\n",
      kWidth, kWidth, full, full, partial, grouped(r.tiles_full), grouped(r.tiles_partial), grouped(r.tiles_skipped));
}

std::string findings_table(const DemoReport& r) {
  std::string html =
      "<div class=scroll><table><tr><th>output<th>rows compared<th>largest error<th>allowed<th>used<th></tr>\n";
  for (const Verified& v : r.findings)
    html += fmt::format("<tr><td>{}<td>{}<td>{:.2e}<td>{:.2e}<td>{:.0f} %<td class={}>{}</tr>\n", v.output, grouped(v.rows),
                        v.error, v.allowed, v.allowed > 0 ? 100 * v.error / v.allowed : 0,
                        v.finding.empty() ? "ok" : "wrong", v.finding.empty() ? "ok" : xml_escaped(v.finding));
  return html + "</table></div>\n";
}

// One mark per row: flat where no bit changed.
std::string isolation_picture(const DemoReport::Isolation& x) {
  const double step = static_cast<double>(kWidth) / static_cast<double>(x.change.size());
  const double largest = *std::max_element(x.change.begin(), x.change.end());
  std::string svg = fmt::format("<svg viewBox='0 0 {} 120' role=img aria-label='Change of each row'>\n", kWidth);
  for (std::size_t row = 0; row < x.change.size(); ++row) {
    const bool candidate = static_cast<i64>(row) >= x.first_candidate;
    const double height = x.same_bits[row] || largest == 0 ? 3 : 8 + 82 * x.change[row] / largest;
    const char* css = x.same_bits[row] ? (candidate ? "b" : "a") : static_cast<i64>(row) == x.changed_row ? "c" : "bad";
    svg += fmt::format(
        "<rect class={} x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}'><title>row {}: {}</title></rect>\n", css,
        static_cast<double>(row) * step, 95 - height, std::max(step - 1, 0.8), height, row,
        x.same_bits[row] ? "same bits" : fmt::format("changed by {:.3g}", x.change[row]));
  }
  const double border = static_cast<double>(x.first_candidate) * step;
  return svg + fmt::format(
                   "<text class=soft x='0' y='113'>context, history</text><text class=soft x='{:.1f}' "
                   "y='113'>candidates</text></svg>\n",
                   std::min(border, kWidth - 70.0));
}

std::string isolation_part(const DemoReport::Isolation& x) {
  if (x.change.empty()) return "<p>Not shown: no user has eight candidates and an item to exchange.</p>\n";
  return fmt::format(
             "<p>User {}: candidate row {} was exchanged for another item and the sequence run again. The bars show how "
             "much each "
             "row's output changed; a flat row kept <em>every bit</em>. {}</p>\n<figure>",
             xml_escaped(x.user), x.changed_row,
             x.holds() ? fmt::format("<span class=ok>All {} other rows did.</span>", x.change.size() - 1)
                       : "<span class=wrong>Other rows changed: this is a defect.</span>") +
         isolation_picture(x) + "</figure>\n";
}

std::string session_table(const DemoReport& r) {
  constexpr std::size_t kShown = 12;
  std::string html =
      "<div class=scroll><table><tr><th>user<th>history<th>candidates<th>of them met<th>rows<th>visible pairs<th>of the "
      "square</tr>\n";
  for (std::size_t n = 0; n < std::min(kShown, r.sessions.size()); ++n) {
    const auto& s = r.sessions[n];
    html += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.0f} %</tr>\n", xml_escaped(s.user), s.history,
                        s.candidates, s.positives, s.rows, grouped(s.visible_pairs),
                        100.0 * static_cast<double>(s.visible_pairs) / static_cast<double>(s.rows * s.rows));
  }
  return html + "</table></div>\n";
}

}  // namespace

i64 DemoReport::total_rows() const {
  i64 rows = 0;
  for (const SessionRow& s : sessions) rows += s.rows;
  return rows;
}

bool DemoReport::Isolation::holds() const {
  for (std::size_t row = 0; row < same_bits.size(); ++row)
    if (same_bits[row] == (static_cast<i64>(row) == changed_row)) return false;
  return !same_bits.empty();
}

std::string demo_page(const DemoReport& r) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width, "
      "initial-scale=1'>\n"
      "<title>isoflash: attention for rankers, on {0}</title>\n<style>{1}</style>\n<body>\n<h1>isoflash</h1>\n"
      "<p>Exact attention for recommendation rankers, forward and backward, run on {2} and checked against a float64 "
      "oracle.</p>\n"
      "<p class=soft>{3} query heads on {4} key heads, head_dim {5}, {6}; kernel <code>{7}</code> on {8}.</p>\n",
      xml_escaped(r.source), kStyle,
      r.generated ? "made-up sessions of realistic lengths" : "real sessions from " + xml_escaped(r.source), r.num_heads_q,
      r.num_heads_kv, r.head_dim, r.dtype, xml_escaped(r.kernel), xml_escaped(r.processor));
  page += cards(r);
  page += fmt::format(
      "<h2>What one user's rows see</h2>\n<p>User {}: two context rows, then the history in time order, then candidates to "
      "score. "
      "Every row sees context and history; a candidate also sees itself, and no other candidate.</p>\n<figure "
      "class=mask>{}</figure>\n",
      xml_escaped(r.mask_user), mask_svg(view_of(r.mask, r.mask.seqlen_kv, 16, 16)));
  page += "<h2>Sequences are short and unequal</h2>\n<figure>" + length_histogram(r) + "</figure>\n";
  page += "<h2>So padding would be most of the work</h2>\n<p>(Query, key) pairs per head.</p>\n<figure>" + work_bars(r) +
          fmt::format("<figcaption>Tiles of {} x {}:</figcaption>", r.tile, r.tile) + tile_bar(r) + "</figure>\n";
  page +=
      "<h2>Every number is checked</h2>\n<p>Sampled rows against float64 attention computed from the definition. Allowed "
      "is what "
      "the textbook computation in the same types gets, doubled, plus one rounding.</p>\n" +
      findings_table(r);
  page += "<h2>A candidate's output does not depend on the other candidates</h2>\n" + isolation_part(r.isolation);
  page += fmt::format("<h2>Sessions</h2>\n<p>The first of {}.</p>\n", grouped(static_cast<i64>(r.sessions.size()))) +
          session_table(r);
  page +=
      "<h2>Do it yourself</h2>\n<pre>isoflash run batch.safetensors --backward --verify sample\nisoflash check\nisoflash "
      "bench</pre>\n";
  return page + "</body></html>\n";
}

}  // namespace iso::tool
