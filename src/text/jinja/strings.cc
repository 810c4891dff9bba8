#include "text/jinja/strings.h"

#include <algorithm>

#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

std::size_t previous_start(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

char32_t code_point_at(std::string_view text, std::size_t at) {
  return next_code_point(text, at);
}

void add_piece(Runtime& runtime, std::vector<std::string>& pieces, std::string_view piece) {
  runtime.charge_bytes(piece.size());
  runtime.check_room(pieces.size() * sizeof(std::string));
  pieces.emplace_back(piece);
}

}  // namespace

std::string strip(std::string_view text, const std::optional<std::string>& characters, bool left, bool right) {
  if (!characters) return std::string(strip_space(text, left, right));
  const std::u32string set = to_code_points(*characters);
  const auto in_set = [&set](char32_t c) { return set.find(c) != std::u32string::npos; };
  while (left && !text.empty()) {
    std::size_t at = 0;
    if (!in_set(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    const std::size_t start = previous_start(text, text.size());
    if (!in_set(code_point_at(text, start))) break;
    text = text.substr(0, start);
  }
  return std::string(text);
}

std::vector<std::string> split_space(Runtime& runtime, std::string_view text, std::int64_t limit, bool from_right) {
  std::vector<std::string> pieces;
  while (true) {
    text = strip_space(text, !from_right, from_right);
    if (text.empty()) break;
    if (limit >= 0 && static_cast<std::int64_t>(pieces.size()) >= limit) {
      add_piece(runtime, pieces, text);
      break;
    }
    if (from_right) {
      std::size_t start = text.size();
      while (start > 0 && !is_space(code_point_at(text, previous_start(text, start))))
        start = previous_start(text, start);
      add_piece(runtime, pieces, text.substr(start));
      text = text.substr(0, start);
    } else {
      std::size_t end = 0;
      while (end < text.size() && !is_space(code_point_at(text, end))) next_code_point(text, end);
      add_piece(runtime, pieces, text.substr(0, end));
      text = text.substr(end);
    }
  }
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string> split(Runtime& runtime, std::string_view text, std::string_view separator, std::int64_t limit,
                               bool from_right) {
  if (separator.empty()) fail("empty separator");
  std::vector<std::string> pieces;
  while (limit < 0 || static_cast<std::int64_t>(pieces.size()) < limit) {
    if (from_right) {
      const std::size_t found = find_last_text(runtime, text, separator);
      if (found == std::string_view::npos) break;
      add_piece(runtime, pieces, text.substr(found + separator.size()));
      text = text.substr(0, found);
    } else {
      const std::size_t found = find_text(runtime, text, separator);
      if (found == std::string_view::npos) break;
      add_piece(runtime, pieces, text.substr(0, found));
      text = text.substr(found + separator.size());
    }
  }
  add_piece(runtime, pieces, text);
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string> split_lines(Runtime& runtime, std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    add_piece(runtime, lines, text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) add_piece(runtime, lines, text.substr(start));
  return lines;
}

std::string replace(Runtime& runtime, std::string_view text, std::string_view old, std::string_view with,
                    std::int64_t limit) {
  TextBuilder out(runtime);
  std::size_t done = 0;
  for (std::size_t at = 0; limit != 0; --limit) {
    const std::size_t found = find_text(runtime, text, old, at);
    if (found == std::string_view::npos) break;
    out << text.substr(done, found - done) << with;
    done = found + old.size();
    at = done;
    if (!old.empty()) continue;
    if (at >= text.size()) return out.take();  // an empty text is found before every character and at the end
    next_code_point(text, at);
  }
  out << text.substr(done);
  return out.take();
}

}  // namespace nibble::text::jinja
