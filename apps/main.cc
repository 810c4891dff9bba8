#include <csignal>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "base/build_info.h"

namespace {

// A command whose output was lost has not done its work.
int finish(int status) {
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (lost) std::fprintf(stderr, "error: the output could not be written\n");
  return lost && status == 0 ? 1 : status;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace nibble;
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe ends the output, not the process without a word
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of the write, like a full disk
  CLI::App app{"nibble: NVFP4 language models on CPUs. One model file, one answer, bit for bit."};
  app.set_version_flag("--version", std::string("nibble ") + kVersion + " (" + kCommit + ")");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::help);

  // CLI11 keeps the order of registration in --help.
  std::vector<std::pair<CLI::App*, apps::Command>> commands;
  for (const auto add : {apps::add_doctor, apps::add_inspect, apps::add_verify, apps::add_quantize, apps::add_run,
                         apps::add_chat, apps::add_replay}) {
    apps::Command command = add(app);
    commands.emplace_back(app.get_subcommands([](const CLI::App*) { return true; }).back(), std::move(command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    for (const auto& [subcommand, command] : commands) {
      if (subcommand->parsed()) return finish(command());
    }
  } catch (const std::exception& error) {  // out of memory and the like: no input is meant to lead here
    std::fprintf(stderr, "nibble: internal error: %s\n", error.what());
    return 1;
  }
  return 2;
}
