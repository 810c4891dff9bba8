// Two kinds of picture as inline SVG: bars, and a map of cells. Colours come from the page's style sheet (report.cc).
#pragma once

#include <string>
#include <vector>

namespace nibble::measure {

std::string escape_html(const std::string& text);

struct Bar {
  std::string label;
  double value = 0;
  std::string text;  // beside the bar
  double limit = 0;  // a mark behind the bar; 0: none
};
// Horizontal bars from zero, as long as the largest value or limit allows.
std::string bar_chart(const std::vector<Bar>& bars);

struct CellMap {
  std::vector<std::string> rows, columns;
  std::vector<double> values;  // [rows, columns]; negative: no cell
  std::string format = "{:.4f}";
};
// Darker is larger, from the smallest value to the largest; the value is shown where the pointer rests.
std::string cell_map(const CellMap& map);

}  // namespace nibble::measure
