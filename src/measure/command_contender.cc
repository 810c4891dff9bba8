#include <chrono>
#include <utility>

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
  explicit CommandContender(std::string command) : command_(std::move(command)) {}

  Result<Sample> run() override {
    const auto begin = std::chrono::steady_clock::now();
    NIBBLE_ASSIGN(ChildProcess child, ChildProcess::start({"/bin/sh", "-c", command_}, false));
    NIBBLE_ASSIGN(std::string output, child.read_all(kTimeout));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    const Json line = Json::parse(last_line(std::move(output)), nullptr, false);
    if (!line.is_object() || !line.contains("seconds")) return Sample{elapsed.count(), ""};
    if (!line["seconds"].is_number() || line["seconds"].get<double>() <= 0) {
      return Error{
          .message = "the command's 'seconds' is not a time", .file = command_, .found = line["seconds"].dump()};
    }
    tells_seconds_ = true;
    const bool has_digest = line.contains("digest") && line["digest"].is_string();
    return Sample{line["seconds"].get<double>(), has_digest ? line["digest"].get<std::string>() : ""};
  }
  Json facts() const override {
    return {{"command", command_}, {"seconds", tells_seconds_ ? "as the command says" : "from start to end"}};
  }

 private:
  std::string command_;
  bool tells_seconds_ = false;
};

}  // namespace

std::unique_ptr<Contender> make_command_contender(const std::string& command) {
  return std::make_unique<CommandContender>(command);
}

}  // namespace nibble::measure
