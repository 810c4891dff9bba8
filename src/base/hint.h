// Hints of the library name what can be set, and not the flags of a program: "use {backend=cpu}; or pass a smaller
// {ctx}". Settings are backend, isa, contract, lane, ctx, python and llama-bench; parts between semicolons stand alone,
// so that a program leaves out those whose setting it does not have.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace nibble {

// How a program calls a setting; a value may be empty. nullopt: it has no such setting.
using SettingName = std::function<std::optional<std::string>(std::string_view setting, std::string_view value)>;

std::string render_hint(std::string_view hint, const SettingName& name_of);
// For readers who are not known: "use backend cpu; or pass a smaller context".
std::string plain_hint(std::string_view hint);

}  // namespace nibble
