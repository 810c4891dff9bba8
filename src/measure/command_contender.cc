#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "base/printable.h"
#include "measure/child_process.h"
#include "measure/contender.h"

namespace nibble::measure {
namespace {

constexpr double kTimeout = 3600;

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

class CommandContender final : public Contender {
 public:
  CommandContender(std::string command, const Task& task) : command_(std::move(command)), task_(task_facts(task)) {}

  Result<Sample> run() override {
    const auto begin = std::chrono::steady_clock::now();
    auto child = ChildProcess::start({"/bin/sh", "-c", command_}, false);
    if (!child.ok()) return fault("cannot be run", child.error().message, "a command for /bin/sh");
    const auto output = child->read_all(kTimeout);
    if (!output.ok()) return fault("failed", output.error().message, "exit status 0");
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    const std::string line = last_line(*output);
    const Json told = Json::parse(line, nullptr, false);
    // JSON has no NaN and no infinity, and whoever prints one meant to tell a time.
    const bool means_to_tell = line.starts_with('{') && line.find("\"seconds\"") != std::string::npos;
    if (!told.is_object() || !told.contains("seconds")) {
      if (means_to_tell) return no_time(line);
      return Sample{elapsed.count(), ""};
    }
    const double seconds = told["seconds"].is_number() ? told["seconds"].get<double>() : 0;
    if (!std::isfinite(seconds) || seconds <= 0) return no_time(line);
    tells_seconds_ = true;
    NIBBLE_TRY(check_work(told));
    const bool has_digest = told.contains("digest") && told["digest"].is_string();
    return Sample{seconds, has_digest ? told["digest"].get<std::string>() : ""};
  }
  Json facts() const override {
    return {{"command", command_},
            {"seconds", tells_seconds_ ? "as the command says" : "from start to end"},
            {"work", tells_work_ ? "that of A, as the command says" : "not told"}};
  }

 private:
  Error fault(const char* what, const std::string& found, const char* expected) const {
    return Error{.message = fmt::format("the command of B, '{}', {}", printable(command_), what),
                 .found = printable(found),
                 .expected = expected};
  }
  Error no_time(const std::string& line) const {
    return fault("tells no time", line, "a last line {\"seconds\": S} with S above 0, or none");
  }

  // Times of different work are no comparison.
  Status check_work(const Json& told) {
    tells_work_ = told.contains("timed_tokens");
    for (const auto& [key, ours] : task_.items()) {
      if (!told.contains(key) || told[key] == ours) continue;
      Error error = fault("does other work than A, and times of different work are not compared",
                          fmt::format("{} {}", key, told[key].dump()), "");
      error.expected = fmt::format("{} {}", key, ours.dump());
      error.hint = "give both sides the same command, tokens, prefix, text and vocabulary";
      return error;
    }
    return ok_status();
  }

  std::string command_;
  Json task_;
  bool tells_seconds_ = false;
  bool tells_work_ = false;
};

}  // namespace

std::unique_ptr<Contender> make_command_contender(const std::string& command, const Task& task) {
  return std::make_unique<CommandContender>(command, task);
}

}  // namespace nibble::measure
