#include "measure/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "measure/svg.h"

namespace nibble::measure {
namespace {

// Of the page and of every picture that stands alone.
constexpr const char* kPictureStyle = R"(
:root { --ink: #1c1d21; --dim: #63666f; --paper: #fff; --bar: #2f6db5; --limit: #c0392b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e8; --dim: #9a9da6; --paper: #17181c; --bar: #6aa5e8; --limit: #ef7d6d; }
}
svg { background: var(--paper); } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.bar, .cell { fill: var(--bar); } .limit { stroke: var(--limit); stroke-width: 2; }
)";
constexpr const char* kPageStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } p { color: var(--dim); }
.picture { overflow-x: auto; }
table { border-collapse: collapse; display: block; overflow-x: auto; } td, th { padding: 0.15rem 0.7rem; text-align: right; } td:first-child, th:first-child { text-align: left; }
)";

std::string error_range(std::span<const TensorError> tensors) {
  if (tensors.empty()) return "";
  const auto [least, most] = std::ranges::minmax_element(tensors, {}, &TensorError::relative_rms);
  return fmt::format(", {:.2f} to {:.2f} %", 100 * least->relative_rms, 100 * most->relative_rms);
}

std::string error_map(std::span<const TensorError> tensors) {
  CellMap map;
  int n_layers = 0;
  for (const TensorError& t : tensors) {
    n_layers = std::max(n_layers, t.layer + 1);
    if (std::ranges::find(map.rows, t.kind) == map.rows.end()) map.rows.push_back(t.kind);
  }
  map.columns.reserve(static_cast<std::size_t>(n_layers) + 1);
  for (int layer = 0; layer < std::max(n_layers, 1); ++layer) map.columns.push_back(std::to_string(layer));
  map.values.assign(map.rows.size() * map.columns.size(), -1);
  for (const TensorError& t : tensors) {
    const auto row = static_cast<std::size_t>(std::ranges::find(map.rows, t.kind) - map.rows.begin());
    map.values[row * map.columns.size() + static_cast<std::size_t>(std::max(t.layer, 0))] = t.relative_rms;
  }
  return cell_map(map);
}

std::string code_bars(std::span<const TensorError> tensors) {
  constexpr const char* kNames[16] = {"0",  "0.5",  "1",  "1.5",  "2",  "3",  "4",  "6",
                                      "-0", "-0.5", "-1", "-1.5", "-2", "-3", "-4", "-6"};
  std::array<double, 16> counts = {};
  double total = 0;
  for (const TensorError& t : tensors) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      counts[i] += static_cast<double>(t.stats.codes[i]);
      total += static_cast<double>(t.stats.codes[i]);
    }
  }
  std::vector<Bar> bars;
  bars.reserve(counts.size());
  for (const std::size_t i : {15, 14, 13, 12, 11, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7}) {
    const double share = total > 0 ? counts[i] / total : 0;
    bars.push_back({.label = kNames[i], .value = share, .text = fmt::format("{:.2f} %", 100 * share)});
  }
  return bar_chart(bars);
}

std::string scale_bars(std::span<const TensorError> tensors) {
  std::array<double, 16> counts = {};
  double total = 0;
  for (const TensorError& t : tensors) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      counts[i] += static_cast<double>(t.stats.scale_exponents[i]);
      total += static_cast<double>(t.stats.scale_exponents[i]);
    }
  }
  const auto is_used = [](double count) { return count > 0; };
  const auto first = static_cast<std::size_t>(std::ranges::find_if(counts, is_used) - counts.begin());
  std::size_t last = counts.size();
  while (last > first && !is_used(counts[last - 1])) --last;
  std::vector<Bar> bars;
  bars.reserve(counts.size());
  for (std::size_t i = first; i < last; ++i) {
    const double share = total > 0 ? counts[i] / total : 0;
    bars.push_back({.label = i == 0 ? "below 2^-6" : fmt::format("2^{}", static_cast<int>(i) - 7),
                    .value = share,
                    .text = fmt::format("{:.2f} %", 100 * share)});
  }
  return bar_chart(bars);
}

std::string bits_bars(std::span<const TensorGroup> groups) {
  std::vector<Bar> bars;
  bars.reserve(groups.size());
  for (const TensorGroup& g : groups) {
    bars.push_back(
        {.label = fmt::format("{} {}", g.kind, dtype_name(g.dtype)),
         .value = g.bits_per_weight(),
         .text = fmt::format("{:.2f} bits, {:.1f} MB", g.bits_per_weight(), static_cast<double>(g.bytes) * 1e-6)});
  }
  return bar_chart(bars);
}

std::string contents_table(std::span<const TensorGroup> groups) {
  std::string html =
      "<table><tr><th>kind</th><th>type</th><th>tensors</th><th>weights</th><th>MB</th><th>bits a weight</th></tr>\n";
  const auto row = [&html](const std::string& kind, std::string_view type, const TensorGroup& g) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.2f}</td></tr>\n",
                        escape_html(kind), type, g.n_tensors, g.n_weights, static_cast<double>(g.bytes) * 1e-6,
                        g.bits_per_weight());
  };
  TensorGroup all;
  for (const TensorGroup& g : groups) {
    row(g.kind, dtype_name(g.dtype), g);
    all.n_tensors += g.n_tensors;
    all.n_weights += g.n_weights;
    all.bytes += g.bytes;
  }
  row("all", "", all);
  return html + "</table>\n";
}

std::string quality_table(const Json& quality) {
  std::string html =
      "<table><tr><th>class</th><th>positions</th><th>perplexity a</th><th>perplexity b</th><th>mean KL</th><th>99 % "
      "KL</th>"
      "<th>max KL</th><th>same first choice</th></tr>\n";
  const auto row = [&html](const std::string& name, const Json& s) {
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.3f}</td><td>{:.5f}</td><td>{:.4f}</td><td>{:.3f}</td>"
        "<td>{:.2f} %</td></tr>\n",
        escape_html(name), s.at("positions").get<std::size_t>(), s.at("a_perplexity").get<double>(),
        s.at("b_perplexity").get<double>(), s.at("mean_kl").get<double>(), s.at("p99_kl").get<double>(),
        s.at("max_kl").get<double>(), 100 * s.at("top1_agreement").get<double>());
  };
  for (const auto& [name, entry] : quality.at("classes").items()) row(name, entry);
  row("all", quality.at("all"));
  return html + "</table>\n";
}

std::string kl_bars(const Json& quality) {
  std::vector<Bar> bars;
  for (const auto& [name, entry] : quality.at("classes").items()) {
    for (const auto& [band, s] : entry.at("bands").items()) {
      const double kl = s.at("mean_kl").get<double>();
      bars.push_back({.label = name + ", positions " + band, .value = kl, .text = fmt::format("{:.5f} nats", kl)});
    }
  }
  return bar_chart(bars);
}

std::string speed_bars(const Json& speed) {
  std::vector<Bar> bars;
  bars.reserve(speed.at("rows").size());
  for (const Json& row : speed.at("rows")) {
    if (row.at("share").is_null()) continue;  // of a backend whose limit is not known
    const bool gemv = row.at("op") == "gemv";
    bars.push_back(
        {.label = fmt::format("{} {} m={} {}x{}, {} x {}", row.at("op").get<std::string>(),
                              row.at("format").get<std::string>(), row.at("m").get<int>(), row.at("n").get<int>(),
                              row.at("k").get<int>(), row.at("isa").get<std::string>(), row.at("threads").get<int>()),
         .value = row.at("share").get<double>(),
         .text = fmt::format("{:.0f} % of {:.1f} {}", 100 * row.at("share").get<double>(),
                             row.at("limit").get<double>(), gemv ? "GB/s" : "GOP/s"),
         .limit = 1});
  }
  return bar_chart(bars);
}

Status check_kind(const Json* receipt, const char* what) {
  if (receipt == nullptr || (receipt->is_object() && receipt->value("what", "") == what)) return ok_status();
  return Error{.message = fmt::format("not a receipt of 'nibble {}'", what),
               .found = receipt->is_object() ? receipt->value("what", "no \"what\"") : "no object",
               .expected = fmt::format("\"what\": \"{}\"", what)};
}

std::vector<Picture> pictures_of(const ReportParts& parts) {
  std::vector<Picture> pictures;
  if (!parts.contents.empty()) {
    pictures.push_back(
        {"bits", "Bits a weight", "By kind of tensor and type, scales included.", bits_bars(parts.contents)});
  }
  if (parts.has_source) {
    pictures.push_back({"error", "Error by layer and tensor",
                        "Root mean square of (NVFP4 - source) over that of the source" + error_range(parts.tensors) +
                            ": the stronger the colour, the larger. Columns are layers.",
                        error_map(parts.tensors)});
  }
  if (!parts.tensors.empty()) {
    pictures.push_back({"codes", "Codes", "How often each of the sixteen values is used, over all NVFP4 tensors.",
                        code_bars(parts.tensors)});
    pictures.push_back(
        {"scales", "Scales", "Groups of 16 by the power of two of their scale.", scale_bars(parts.tensors)});
  }
  if (parts.quality != nullptr) {
    pictures.push_back(
        {"kl", "KL by position in the window",
         "Mean over the positions of a band, in nats a token; what is new at the beginning of a window is "
         "harder.",
         kl_bars(*parts.quality)});
  }
  if (parts.speed != nullptr) {
    pictures.push_back(
        {"speed", "Speed against the limit of the same run",
         "gemv: bytes of weights over the read bandwidth; gemm: operations over the rate of the int16 dot "
         "product. The line is the limit.",
         speed_bars(*parts.speed)});
  }
  return pictures;
}

}  // namespace

Result<std::vector<Picture>> report_pictures(const ReportParts& parts) {
  NIBBLE_TRY(check_kind(parts.quality, "compare"));
  NIBBLE_TRY(check_kind(parts.speed, "bench op"));
  try {
    return pictures_of(parts);
  } catch (const Json::exception& error) {  // a receipt whose fields are not what they should be
    return Error{.message = "a receipt is damaged", .found = error.what(), .expected = "what this version writes"};
  }
}

std::string standalone(const Picture& picture) {
  const std::string open = "<svg ";
  const std::size_t end = picture.svg.find('>') + 1;
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" {}<title>{}</title><style>{}</style>{})",
                     picture.svg.substr(open.size(), end - open.size()), escape_html(picture.title), kPictureStyle,
                     picture.svg.substr(end));
}

Result<std::string> render_report(const ReportParts& parts) {
  NIBBLE_ASSIGN(const std::vector<Picture> pictures, report_pictures(parts));
  const Json program = program_facts(), machine = machine_facts();
  std::string body = fmt::format("<h1>{}</h1>\n<p>nibble {} ({}), {}</p>\n", escape_html(parts.title),
                                 program["version"].get<std::string>(), program["commit"].get<std::string>(),
                                 escape_html(machine["cpu"].get<std::string>()));
  if (!parts.contents.empty()) body += "<h2>What the file holds</h2>\n" + contents_table(parts.contents);
  if (parts.tensors.empty()) {
    body +=
        "<p>No tensor of this file is NVFP4. Codes, scales and errors are shown of what <code>nibble quantize</code> "
        "makes.</p>\n";
  }
  if (parts.quality != nullptr) {
    try {
      const auto side = [&](const char* name) {
        const Json& s = parts.quality->at(name);
        return escape_html(
            fmt::format("{} ({})", s.at("file").get<std::string>(), s.at("contract").get<std::string>()));
      };
      body +=
          fmt::format("<h2>Quality</h2>\n<p>a, the reference: {}; b: {}. Texts as classes, KL in nats a token.</p>\n{}",
                      side("a"), side("b"), quality_table(*parts.quality));
    } catch (const Json::exception& error) {
      return Error{.message = "a receipt is damaged", .found = error.what(), .expected = "what this version writes"};
    }
  }
  for (const Picture& picture : pictures) {
    body += fmt::format("<h2>{}</h2>\n<p>{}</p>\n<div class=\"picture\">{}</div>\n", picture.title, picture.about,
                        picture.svg);
  }
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{}</title>\n<style>{}{}</style>"
      "</head>\n<body>\n{}</body></html>\n",
      escape_html(parts.title), kPictureStyle, kPageStyle, body);
}

}  // namespace nibble::measure
