#include "apps/usage.h"

#include <algorithm>

#include "apps/console.h"
#include "base/hint.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace nibble::apps {
namespace {

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? "nibble" : full_name(*app.get_parent()) + " " + app.get_name();
}

Error unexpected(const CLI::App& command, const std::string& argument) {
  const std::string shown = printable(argument);
  const std::string commands = command_names(command);
  if (!commands.empty() && !argument.starts_with('-')) {
    const std::string group = command.get_parent() == nullptr ? "" : command.get_name() + " ";
    return {.message = fmt::format("there is no command '{}{}'", group, shown), .found = shown, .expected = commands};
  }
  const char* what = argument.starts_with('-') ? "does not know the flag" : "does not expect the argument";
  return {.message = fmt::format("{} {} '{}'", full_name(command), what, shown), .found = shown};
}

// The option that CLI11's message is about: it names none otherwise.
const CLI::Option* option_of(const CLI::App& command, const std::string& message) {
  for (const CLI::Option* option : command.get_options()) {
    if (message.find(option->get_name()) != std::string::npos) return option;
  }
  return nullptr;
}

// `rest`: what CLI11 could not place.
Error describe(const CLI::App& command, const CLI::ParseError& error, const std::vector<std::string>& rest) {
  const auto is = [&error](CLI::ExitCodes kind) { return error.get_exit_code() == static_cast<int>(kind); };
  const bool is_extra = is(CLI::ExitCodes::ExtrasError) || command.get_parent() == nullptr;
  if (is_extra && !rest.empty()) return unexpected(command, rest.front());
  if (is(CLI::ExitCodes::RequiredError) && !command_names(command).empty()) {
    return {.message = full_name(command) + " needs a command", .found = "nothing", .expected = command_names(command)};
  }
  const CLI::Option* option = option_of(command, error.what());
  if (option == nullptr) return {.message = error.what()};
  const std::string name = option->get_name();
  if (is(CLI::ExitCodes::RequiredError)) {
    return {.message = fmt::format("{} needs {}", full_name(command), name),
            .found = "nothing",
            .expected = option->get_description()};
  }
  if (!is(CLI::ExitCodes::ArgumentMismatch)) return {.message = error.what()};  // "--prompt excludes --file"
  if (option->count() > 1) {
    return {.message = fmt::format("{} is given {} times", name, option->count()), .expected = "once"};
  }
  return {.message = fmt::format("{} needs a value", name), .found = "nothing", .expected = option->get_description()};
}

// The flags for what hints of the library name (base/hint.h). A command may have one for both sides of a comparison.
std::optional<std::string> flag_of(const CLI::App& command, std::string_view setting, std::string_view value) {
  static constexpr std::pair<std::string_view, const char*> kFlags[] = {
      {"backend", "--backend"}, {"isa", "--isa"},       {"contract", "--contract"},
      {"lane", "--lane"},       {"ctx", "--ctx"},       {"ctx", "--window"},
      {"ctx", "--n-tokens"},    {"python", "--python"}, {"llama-bench", "--llama-bench"}};
  for (const auto& [name, flag] : kFlags) {
    if (name != setting || command.get_option_no_throw(flag) == nullptr) continue;
    return value.empty() ? std::string(flag) : fmt::format("{} {}", flag, value);
  }
  const bool has_sides = command.get_option_no_throw("--a") != nullptr;
  const bool is_of_a_side = setting == "backend" || setting == "isa" || setting == "contract";
  if (!has_sides || !is_of_a_side) return std::nullopt;
  return value.empty() ? fmt::format("{} in --a or --b", setting) : fmt::format("{}={} in --a or --b", setting, value);
}

std::string one_of(const std::vector<std::string>& choices) {
  return fmt::format("one of: {}", fmt::join(choices, ", "));
}

const std::string& choice_or_throw(const std::string& flags, const std::string& text,
                                   const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
  throw BadUsage(bad_value(flags, text, one_of(choices)));
}

}  // namespace

int fail(const CLI::App& command, Error error) {
  error.hint = render_hint(
      error.hint, [&](std::string_view setting, std::string_view value) { return flag_of(command, setting, value); });
  return fail(error);
}

const CLI::App& chosen_command(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_command(*chosen.front());
}

int wrong_usage(const CLI::App& command, Error error) {
  if (error.hint.empty()) error.hint = fmt::format("see {} --help", full_name(command));
  fail(error);
  return 2;
}

int wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen_command(app);
  const std::vector<std::string> rest = app.remaining(true);
  if (&command == &app && rest.empty()) return say("{}", app.help()), 2;  // no arguments at all
  return wrong_usage(command, describe(command, error, rest));
}

std::string long_name(const std::string& flags) {
  return flags.substr(flags.rfind(',') + 1);  // npos + 1 is 0
}

Error bad_value(const std::string& flags, std::string_view found, std::string expected) {
  return {.message = fmt::format("{} cannot be '{}'", long_name(flags), printable(found)),
          .found = printable(found),
          .expected = std::move(expected)};
}

std::function<std::string(const std::string&)> not_empty(const std::string& flags, const std::string& expected) {
  return [flags, expected](const std::string& text) {
    if (!text.empty()) return std::string();
    throw BadUsage(
        {.message = fmt::format("{} needs a value", long_name(flags)), .found = "an empty one", .expected = expected});
  };
}

std::vector<std::string> elements_or_throw(const std::string& flags, const std::vector<std::string>& texts,
                                           const std::string& expected) {
  std::vector<std::string> elements;
  for (const std::string& text : texts) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      if (end == begin) {
        throw BadUsage({.message = fmt::format("{} has an empty element", long_name(flags)),
                        .found = fmt::format("'{}'", printable(text)),
                        .expected = expected + "; one comma between two"});
      }
      elements.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return elements;
}

std::string in_words(const std::vector<std::string>& choices) {
  std::string words;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    words += (i == 0 ? "" : i + 1 < choices.size() ? ", " : " or ") + choices[i];
  }
  return words;
}

CLI::Option* add_choice(CLI::App& command, const std::string& flags, std::string& value,
                        std::vector<std::string> choices, const std::string& description) {
  const auto choose = [&value, flags, choices = std::move(choices)](const std::string& text) {
    value = choice_or_throw(flags, text, choices);
  };
  return command.add_option_function<std::string>(flags, choose, description)->type_name("NAME")->default_str(value);
}

CLI::Option* add_choices(CLI::App& command, const std::string& flags, std::vector<std::string>& values,
                         std::vector<std::string> choices, const std::string& description) {
  const auto choose = [&values, flags, choices = std::move(choices)](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : elements_or_throw(flags, texts, one_of(choices))) {
      values.push_back(choice_or_throw(flags, text, choices));
    }
  };
  auto* option =
      command.add_option_function<std::vector<std::string>>(flags, choose, description)->type_name("NAME,...");
  return values.empty() ? option : option->default_str(fmt::format("{}", fmt::join(values, ",")));
}

CLI::Option* add_text(CLI::App& command, const std::string& flags, std::string& value, const std::string& description) {
  const auto take = [&value, flags](const std::string& text) {
    Status status = check_utf8(text, long_name(flags));
    if (!status.ok()) throw BadUsage(std::move(status).error());
    value = text;
  };
  return command.add_option_function<std::string>(flags, take, description)->type_name("TEXT");
}

}  // namespace nibble::apps
