#include "apps/usage.h"

#include <algorithm>

#include "apps/console.h"
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
  return app.get_parent() == nullptr ? "nibble" : "nibble " + app.get_name();
}

Error unexpected(const CLI::App& command, const std::string& argument) {
  const std::string shown = printable(argument);
  if (command.get_parent() == nullptr && !argument.starts_with('-')) {
    return {
        .message = fmt::format("there is no command '{}'", shown), .found = shown, .expected = command_names(command)};
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

}  // namespace

int wrong_usage(const CLI::App& command, Error error) {
  if (error.hint.empty()) error.hint = fmt::format("see {} --help", full_name(command));
  fail(error);
  return 2;
}

int wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  const std::vector<std::string> rest = app.remaining(true);
  if (commands.empty() && rest.empty()) return say("{}", app.help()), 2;  // no arguments at all
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

CLI::Option* add_choice(CLI::App& command, const std::string& flags, std::string& value,
                        std::vector<std::string> choices, const std::string& description) {
  const std::string words = fmt::format("{}", fmt::join(choices, ", "));
  const auto choose = [&value, flags, choices = std::move(choices), words](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      throw BadUsage(bad_value(flags, text, "one of: " + words));
    }
    value = text;
  };
  return command.add_option_function<std::string>(flags, choose, description)->type_name("NAME")->default_str(value);
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
