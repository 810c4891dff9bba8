#include "measure/python_peer.h"

#include <utility>

namespace nibble::measure {
namespace {

constexpr double kTimeout = 1800;

std::string string_at(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

// What it says is wrong, or else the line as it stands.
Error refusal(const Json& answer, std::string line) {
  std::string reason = string_at(answer, "error");
  return Error{.message = reason.empty() ? std::move(line) : std::move(reason)};
}

}  // namespace

Result<PythonPeer> PythonPeer::start(const std::string& python, const char* driver, const Json& request) {
  NIBBLE_ASSIGN(ChildProcess child, ChildProcess::start({python, "-c", driver}, true));
  NIBBLE_TRY(child.write_line(request.dump()));
  NIBBLE_ASSIGN(std::string line, child.read_line(kTimeout));
  const Json answer = Json::parse(line, nullptr, false);
  std::string description = string_at(answer, "description");
  if (description.empty()) return refusal(answer, std::move(line));
  return PythonPeer(std::move(child), std::move(description));
}

Result<Sample> PythonPeer::sample() {
  NIBBLE_TRY(child_.write_line("run"));
  NIBBLE_ASSIGN(std::string line, child_.read_line(kTimeout));
  const Json answer = Json::parse(line, nullptr, false);
  if (!answer.is_object() || !answer.contains("seconds") || !answer["seconds"].is_number() ||
      answer["seconds"].get<double>() <= 0) {
    return refusal(answer, std::move(line));
  }
  return Sample{answer["seconds"].get<double>(), string_at(answer, "digest")};
}

}  // namespace nibble::measure
