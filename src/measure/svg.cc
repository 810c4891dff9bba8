#include "measure/svg.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble::measure {
namespace {

// Room for the longest of some texts. Whose fonts a page is shown in nobody knows: the widest usual one (DejaVu Sans,
// 12 pixels) takes 7.2 a character on average, and more where a text is short (tests/measure/report_browser_test.py).
class TextRoom {
 public:
  void hold(const std::string& text) { most_ = std::max(most_, text.size()); }
  std::size_t width() const { return 8 * most_ + 8; }

 private:
  std::size_t most_ = 0;
};
constexpr std::size_t kGap = 6;  // between a text and what it is about

}  // namespace

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string bar_chart(const std::vector<Bar>& bars) {
  constexpr std::size_t kWidth = 420, kStep = 22, kHeight = 14;
  double most = 0;
  TextRoom labels, texts;
  for (const Bar& bar : bars) {
    most = std::max({most, bar.value, bar.limit});
    labels.hold(bar.label);
    texts.hold(bar.text);
  }
  const std::size_t label = labels.width() + kGap, width = label + kWidth + kGap + texts.width();
  const auto length = [most](double value) { return most > 0 ? value / most * kWidth : 0; };
  std::string svg =
      fmt::format(R"(<svg viewBox="0 0 {0} {1}" width="{0}" role="img">)", width, kStep * bars.size() + 4);
  double y = 2;
  for (const Bar& bar : bars) {
    svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{}</text>)", label - kGap, y + kHeight - 2,
                       escape_html(bar.label));
    svg += fmt::format(R"(<rect class="bar" x="{}" y="{}" width="{:.2f}" height="{}"/>)", label, y, length(bar.value),
                       kHeight);
    if (bar.limit > 0) {
      const double x = static_cast<double>(label) + length(bar.limit);
      svg +=
          fmt::format(R"(<line class="limit" x1="{:.2f}" x2="{:.2f}" y1="{}" y2="{}"/>)", x, x, y - 2, y + kHeight + 2);
    }
    svg += fmt::format(R"(<text x="{:.2f}" y="{}">{}</text>)",
                       static_cast<double>(label + kGap) + length(std::max(bar.value, bar.limit)), y + kHeight - 2,
                       escape_html(bar.text));
    y += kStep;
  }
  return svg + "</svg>\n";
}

std::string cell_map(const CellMap& map) {
  constexpr std::size_t kCell = 20;
  double least = 1e300, most = 0;
  for (const double value : map.values) {
    if (value < 0) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  TextRoom labels, last_column;  // a column's text begins at its cell and may be wider
  for (const std::string& row : map.rows) labels.hold(row);
  for (const std::string& column : map.columns) last_column.hold(column);
  const std::size_t n_columns = map.columns.size(), label = labels.width() + kGap;
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {0} {1}" width="{0}" role="img">)",
                                label + kCell * n_columns + last_column.width(), kCell * (map.rows.size() + 1) + 4);
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{}</text>)", label - kGap, kCell * r + 14,
                       escape_html(map.rows[r]));
    for (std::size_t c = 0; c < n_columns; ++c) {
      const double value = map.values[r * n_columns + c];
      if (value < 0) continue;
      const double shade = most > least ? 0.1 + 0.9 * (value - least) / (most - least) : 0.5;
      svg += fmt::format(
          R"(<rect class="cell" x="{}" y="{}" width="{}" height="{}" fill-opacity="{:.3f}"><title>{} {}: {}</title></rect>)",
          label + kCell * c, kCell * r, kCell - 2, kCell - 2, shade, escape_html(map.rows[r]),
          escape_html(map.columns[c]), fmt::format(fmt::runtime(map.format), value));
    }
  }
  for (std::size_t c = 0; c < n_columns; c += 5) {
    svg += fmt::format(R"(<text x="{}" y="{}">{}</text>)", label + kCell * c + 2, kCell * map.rows.size() + 14,
                       escape_html(map.columns[c]));
  }
  return svg + "</svg>\n";
}

}  // namespace nibble::measure
