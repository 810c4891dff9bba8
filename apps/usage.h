// The command line's own mistakes: what stands there, what was expected, where to read on; exit status 2, and nothing
// has been opened or loaded by then. Flags with values are added through here, so that all are refused in one way.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"

namespace nibble::apps {

// Thrown while CLI11 parses, caught in main: it has no other way to stop.
class BadUsage : public std::exception {
 public:
  explicit BadUsage(Error error) : error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// fail() of console.h, with the hint in the words of the command's flags; what it has no flag for is left out.
int fail(const CLI::App& command, Error error);

// The command that the arguments chose, "bench op" for example; `app` where they chose none.
const CLI::App& chosen_command(const CLI::App& app);
// Prints the error and where help is; returns 2.
int wrong_usage(const CLI::App& command, Error error);
// What CLI11 found wrong with the arguments of `app`, in our words; returns 2.
int wrong_usage(const CLI::App& app, const CLI::ParseError& error);

// "--temp" of "-t,--temp".
std::string long_name(const std::string& flags);
Error bad_value(const std::string& flags, std::string_view found, std::string expected);

// For CLI::Option::check: refuses an empty value.
std::function<std::string(const std::string&)> not_empty(const std::string& flags, const std::string& expected);

// The whole of `text` as a number; false also where it overflows, and for NaN and infinities.
template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return false;
  }
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

// "a whole number from 0 to 1024", "a number from 0 to 1"
template <typename T>
std::string range_in_words(T least, T most) {
  return fmt::format("{} from {} to {}", std::is_floating_point_v<T> ? "a number" : "a whole number", least, most);
}

template <typename T>
T number_or_throw(const std::string& flags, std::string_view text, T least, T most) {
  T parsed{};
  if (!parse_number(text, parsed) || parsed < least || parsed > most) {
    throw BadUsage(bad_value(flags, text, range_in_words(least, most)));
  }
  return parsed;
}

template <typename T>
CLI::Option* add_number(CLI::App& command, const std::string& flags, T& value, const std::string& description,
                        T least = std::numeric_limits<T>::lowest(), T most = std::numeric_limits<T>::max()) {
  const auto parse = [&value, flags, least, most](const std::string& text) {
    value = number_or_throw(flags, text, least, most);
  };
  return command.add_option_function<std::string>(flags, parse, description)
      ->type_name(std::is_floating_point_v<T> ? "NUMBER" : "N")
      ->default_str(fmt::format("{}", value));
}

// A number that may be left out.
template <typename T>
CLI::Option* add_number(CLI::App& command, const std::string& flags, std::optional<T>& value,
                        const std::string& description, T least = std::numeric_limits<T>::lowest(),
                        T most = std::numeric_limits<T>::max()) {
  const auto parse = [&value, flags, least, most](const std::string& text) {
    value = number_or_throw(flags, text, least, most);
  };
  return command.add_option_function<std::string>(flags, parse, description)
      ->type_name(std::is_floating_point_v<T> ? "NUMBER" : "N");
}

// What stands between the commas of `texts`, never nothing: CLI11's own delimiter drops what is empty and says no word.
std::vector<std::string> elements_or_throw(const std::string& flags, const std::vector<std::string>& texts,
                                           const std::string& expected);

// Several, with commas between them.
template <typename T>
CLI::Option* add_numbers(CLI::App& command, const std::string& flags, std::vector<T>& values,
                         const std::string& description, T least, T most) {
  const auto parse = [&values, flags, least, most](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : elements_or_throw(flags, texts, range_in_words(least, most))) {
      values.push_back(number_or_throw(flags, text, least, most));
    }
  };
  auto* option = command.add_option_function<std::vector<std::string>>(flags, parse, description)->type_name("N,...");
  return values.empty() ? option : option->default_str(fmt::format("{}", fmt::join(values, ",")));
}

// One of `choices`, spelled as they are.
CLI::Option* add_choice(CLI::App& command, const std::string& flags, std::string& value,
                        std::vector<std::string> choices, const std::string& description);
// Several of them, with commas between them.
CLI::Option* add_choices(CLI::App& command, const std::string& flags, std::vector<std::string>& values,
                         std::vector<std::string> choices, const std::string& description);
// "auto, cpu or reference"
std::string in_words(const std::vector<std::string>& choices);
// A path, a name or a command: never nothing, which would be as good as no flag. `value` may hold several.
template <typename T>
CLI::Option* add_path(CLI::App& command, const std::string& flags, T& value, const std::string& description) {
  return command.add_option(flags, value, description)->check(not_empty(flags, description));
}
// Text that must be valid UTF-8.
CLI::Option* add_text(CLI::App& command, const std::string& flags, std::string& value, const std::string& description);

}  // namespace nibble::apps
