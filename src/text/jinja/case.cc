// Case conversion as Python's str does it: full mappings of Unicode, one of them by context (the final sigma).
#include <algorithm>
#include <iterator>
#include <span>

#include "base/utf8.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

// Code points first, first + stride, ..., last, each mapped to itself plus delta.
struct CaseRun {
  char32_t first, last;
  std::int32_t stride, delta;
};
struct CaseSpecial {
  char32_t code_point;
  char32_t mapped[3];  // ends with 0 when shorter
};

#include "text/jinja/case_table.inc"

const CaseRun* find_run(std::span<const CaseRun> runs, char32_t c) {
  const auto after = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t value, const CaseRun& run) { return value < run.first; });
  // Runs of stride 2 may interleave, so that the run before the last one that starts below c may hold it.
  for (auto run = after; run != runs.begin() && after - run < 3;) {
    --run;
    if (c <= run->last && (c - run->first) % static_cast<char32_t>(run->stride) == 0) return &*run;
  }
  return nullptr;
}

// False when the tables do not know the code point.
bool append_mapped(std::string& out, std::span<const CaseRun> runs, std::span<const CaseSpecial> specials, char32_t c) {
  if (const CaseRun* run = find_run(runs, c)) {
    append_utf8(static_cast<char32_t>(static_cast<std::int64_t>(c) + run->delta), &out);
    return true;
  }
  const auto special = std::lower_bound(specials.begin(), specials.end(), c,
                                        [](const CaseSpecial& s, char32_t value) { return s.code_point < value; });
  if (special == specials.end() || special->code_point != c) return false;
  for (const char32_t mapped : special->mapped) {
    if (mapped != 0) append_utf8(mapped, &out);
  }
  return true;
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  } else if (!append_mapped(out, kUpperRuns, kUpperSpecials, c)) {
    append_utf8(c, &out);
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  } else if (!append_mapped(out, kLowerRuns, kLowerSpecials, c)) {
    append_utf8(c, &out);
  }
}

void append_title(std::string& out, char32_t c) {
  if (c >= 0x80 && append_mapped(out, kTitleRuns, kTitleSpecials, c)) return;
  if (c >= 0x80 && find_run(kTitleSelfRuns, c) != nullptr) return append_utf8(c, &out);
  append_upper(out, c);
}

// A capital sigma ends a word when a cased letter precedes it and none follows, marks between them aside.
bool is_final_sigma(std::u32string_view text, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

void append_lower_in(std::string& out, std::u32string_view text, std::size_t at) {
  if (text[at] == kCapitalSigma && is_final_sigma(text, at)) return append_utf8(kFinalSigma, &out);
  append_lower(out, text[at]);
}

}  // namespace

std::string to_upper(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_upper(result, next_code_point(text, at));
  return result;
}

std::string to_lower(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) append_lower(result, static_cast<unsigned char>(c));
    return result;
  }
  const std::u32string wide = to_code_points(text);
  for (std::size_t i = 0; i < wide.size(); ++i) append_lower_in(result, wide, i);
  return result;
}

std::string capitalize(std::string_view text) {
  const std::u32string wide = to_code_points(text);
  std::string result;
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (i == 0) {
      append_title(result, wide[0]);
    } else {
      append_lower_in(result, wide, i);
    }
  }
  return result;
}

std::string title_case(std::string_view text) {
  const std::u32string wide = to_code_points(text);
  std::string result;
  bool inside = false;
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (inside) {
      append_lower_in(result, wide, i);
    } else {
      append_title(result, wide[i]);
    }
    inside = is_cased(wide[i]);
  }
  return result;
}

bool is_all_of_case(std::string_view text, bool upper) {
  bool found = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (upper ? is_lower_case(c) || is_title_case(c) : is_upper_case(c) || is_title_case(c)) return false;
    found = found || (upper ? is_upper_case(c) : is_lower_case(c));
  }
  return found;
}

bool is_digit_character(char32_t c) {
  return is_decimal(c) || find_run(kDigitRuns, c) != nullptr;
}

}  // namespace nibble::text::jinja
