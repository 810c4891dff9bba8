#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/usage.h"
#include "base/build_info.h"
#include "base/out_of_memory.h"

namespace {

// A command whose output was lost has not done its work.
int finish(int status) {
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (lost) std::fprintf(stderr, "error: the output could not be written\n");
  return lost && status == 0 ? 1 : status;
}

// What is left to say when a mapped file has lost the page that is read (base/mapped_file.h).
extern "C" void end_of_a_shortened_file(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // a fault of ours
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  static constexpr char kWords[] =
      "error: a file that nibble reads was made shorter while it was in use\n"
      "  hint:     run again; who replaces a model should write a new file and rename it\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
  ::_exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace nibble;
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe ends the output, not the process without a word
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error of the write, like a full disk
  struct sigaction shortened = {};
  shortened.sa_sigaction = end_of_a_shortened_file;
  shortened.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &shortened, nullptr);
  CLI::App app{
      "nibble: NVFP4 language models on CPUs and GPUs without FP4 units. One model file, one answer, bit for bit."};
  app.set_version_flag("--version", std::string("nibble ") + kVersion + " (" + kCommit + ")");
  app.require_subcommand(1);

  // CLI11 keeps the order of registration in --help.
  std::vector<std::pair<CLI::App*, apps::Command>> commands;
  for (const auto add :
       {apps::add_doctor, apps::add_inspect, apps::add_verify, apps::add_quantize, apps::add_run, apps::add_chat,
        apps::add_replay, apps::add_bench, apps::add_ppl, apps::add_compare, apps::add_report}) {
    apps::Command command = add(app);
    commands.emplace_back(app.get_subcommands([](const CLI::App*) { return true; }).back(), std::move(command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return finish(app.exit(done));
  } catch (const CLI::ParseError& error) {
    return apps::wrong_usage(app, error);
  } catch (const apps::BadUsage& error) {
    return apps::wrong_usage(apps::chosen_command(app), error.error());
  }
  try {
    for (const auto& [subcommand, command] : commands) {
      if (!subcommand->parsed()) continue;
      const Result<int> status = command();
      return finish(status.ok() ? *status : apps::fail(apps::chosen_command(app), status.error()));
    }
  } catch (const OutOfMemory& error) {
    return apps::fail(not_enough_memory("this command", error.bytes()));
  } catch (const std::bad_alloc&) {
    return apps::fail(not_enough_memory("this command", 0));
  } catch (const std::exception& error) {  // no input is meant to lead here
    std::fprintf(stderr, "nibble: internal error: %s\n", error.what());
    return 1;
  }
  return 2;
}
