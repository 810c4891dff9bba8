// Renders chat templates for comparison with other implementations: one JSON object a line on stdin,
// {"template": text, "context": object, "now": [year, month, day, hour, minute, second]}, one a line on stdout,
// {"text": text} or {"error": message}. Equal templates on successive lines are parsed once.
#include <fmt/format.h>

#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "text/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

std::optional<std::tm> read_time(const Json& request) {
  if (!request.contains("now")) return std::nullopt;
  std::tm time = {};
  const Json& now = request.at("now");
  time.tm_year = now.at(0).get<int>() - 1900;
  time.tm_mon = now.at(1).get<int>() - 1;
  time.tm_mday = now.at(2).get<int>();
  time.tm_hour = now.at(3).get<int>();
  time.tm_min = now.at(4).get<int>();
  time.tm_sec = now.at(5).get<int>();
  std::tm normalized = time;
  const std::time_t seconds = timegm(&normalized);  // fills in the day of the week and of the year
  gmtime_r(&seconds, &time);
  return time;
}

Json answer(const nibble::Result<std::string>& text) {
  if (text.ok()) return Json{{"text", *text}};
  return Json{{"error", text.error().message}};
}

}  // namespace

int main() {
  std::string line;
  std::string source;
  std::optional<nibble::Result<nibble::text::ChatTemplate>> parsed;
  try {
    while (std::getline(std::cin, line)) {
      const Json request = Json::parse(line);
      if (!parsed || request.at("template").get<std::string>() != source) {
        source = request.at("template").get<std::string>();
        parsed.emplace(nibble::text::ChatTemplate::parse(source));
      }
      const Json result = parsed->ok() ? answer((*parsed)->render(request.at("context"), {.now = read_time(request)}))
                                       : Json{{"error", parsed->error().message}};
      std::cout << result.dump() << "\n" << std::flush;
    }
  } catch (const std::exception& error) {
    std::cerr << "render_template: bad request: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
