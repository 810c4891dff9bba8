#include "base/hint.h"

#include <algorithm>
#include <iterator>

namespace nibble {
namespace {

constexpr std::string_view kSettings[] = {"backend", "isa", "contract", "lane", "ctx", "python", "llama-bench"};

// One part of a hint; nullopt where it names a setting that the program lacks.
std::optional<std::string> render_part(std::string_view part, const SettingName& name_of) {
  std::string out;
  while (!part.empty()) {
    const std::size_t open = part.find('{'), close = part.find('}', std::min(open, part.size()));
    if (close == std::string_view::npos) break;
    const std::string_view inside = part.substr(open + 1, close - open - 1);
    const std::string_view setting = inside.substr(0, inside.find('='));
    out += part.substr(0, open);
    if (std::ranges::find(kSettings, setting) == std::end(kSettings)) {
      out += part.substr(open, close + 1 - open);  // somebody else's braces
    } else {
      const std::string_view value = setting.size() == inside.size() ? "" : inside.substr(setting.size() + 1);
      const std::optional<std::string> name = name_of(setting, value);
      if (!name) return std::nullopt;
      out += *name;
    }
    part.remove_prefix(close + 1);
  }
  return out.append(part);
}

}  // namespace

std::string render_hint(std::string_view hint, const SettingName& name_of) {
  constexpr std::string_view kBetween = "; ", kOr = "or ";
  std::string out;
  while (!hint.empty()) {
    const std::string_view part = hint.substr(0, hint.find(kBetween));
    hint.remove_prefix(std::min(hint.size(), part.size() + kBetween.size()));
    const std::optional<std::string> rendered = render_part(part, name_of);
    if (!rendered) continue;
    const bool begins = out.empty();
    out.append(begins ? "" : kBetween).append(*rendered, begins && rendered->starts_with(kOr) ? kOr.size() : 0);
  }
  return out;
}

std::string plain_hint(std::string_view hint) {
  return render_hint(hint, [](std::string_view setting, std::string_view value) -> std::optional<std::string> {
    std::string name(setting == "ctx" ? "context" : setting);
    return value.empty() ? name : name.append(" ").append(value);
  });
}

}  // namespace nibble
