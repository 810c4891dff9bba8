#include "base/utf8.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace nibble {
namespace {

// Sequence length and the allowed range of the second byte, by lead byte. Length 0: no sequence starts so.
struct Lead {
  std::uint8_t length, low, high;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // no overlong forms
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};  // no overlong forms
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // nothing above U+10FFFF
  return {0, 0, 0};
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0) return {Utf8Step::Kind::kMalformed, 1};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kTruncated, i};
    const std::uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Utf8Step::Kind::kMalformed, i};
  }
  return {Utf8Step::Kind::kCharacter, lead.length};
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    std::uint64_t word;
    if (i + sizeof word <= text.size()) {  // eight ASCII bytes at a time
      std::memcpy(&word, text.data() + i, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        i += sizeof word;
        continue;
      }
    }
    const Utf8Step step = next_utf8(text.substr(i));
    if (step.kind != Utf8Step::Kind::kCharacter) return i;
    i += step.length;
  }
  return std::string_view::npos;
}

Status check_utf8(std::string_view text, std::string_view what) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return ok_status();
  return Error{.message = fmt::format("{} is not valid UTF-8", what),
               .found = fmt::format("byte 0x{:02X} at offset {}", static_cast<std::uint8_t>(text[bad]), bad),
               .hint = "convert the text to UTF-8"};
}

char32_t decode_utf8(std::string_view sequence) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<std::uint8_t>(sequence[i])); };
  switch (sequence.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    case 4:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  NIBBLE_CHECK(false, "decode_utf8 takes one well-formed sequence");
}

void append_utf8(char32_t code_point, std::string* text) {
  const auto put = [&](char32_t byte) { text->push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { put(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    put(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace nibble
