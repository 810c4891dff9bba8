#include "base/printable.h"

#include "base/utf8.h"

namespace nibble {
namespace {

bool is_control(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7F;
  return sequence.size() == 2 && first == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;  // C1 controls
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) return out + "...";
    const Utf8Step step = next_utf8(text);
    if (step.kind == Utf8Step::Kind::kCharacter && !is_control(text.substr(0, step.length))) {
      out += text.substr(0, step.length);
      text.remove_prefix(step.length);
      continue;
    }
    const auto byte = static_cast<unsigned char>(text[0]);
    out += "\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace nibble
