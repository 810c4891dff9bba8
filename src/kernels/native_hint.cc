#include "kernels/native_hint.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/hint.h"

namespace nibble::kernels {

Error in_native_contract(Error error) {
  bool names_a_backend = false;
  const auto keep = [&names_a_backend](std::string_view setting, std::string_view value) -> std::optional<std::string> {
    names_a_backend = names_a_backend || setting == "backend";
    if (setting == "backend") return std::nullopt;
    return value.empty() ? fmt::format("{{{}}}", setting) : fmt::format("{{{}={}}}", setting, value);
  };
  std::string hint = render_hint(error.hint, keep);
  if (!names_a_backend) return error;
  error.hint = std::move(hint);
  error.hint += error.hint.empty() ? "" : "; or ";
  error.hint += "use {contract=nc1}, which is the same on every backend";
  return error;
}

}  // namespace nibble::kernels
