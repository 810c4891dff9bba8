// nibble bench: speed, beside the limits of the machine or beside a peer, measured in the same run; and endurance.
#include <memory>
#include <vector>

#include "apps/bench_commands.h"
#include "apps/commands.h"

namespace nibble::apps {

Command add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench", "Speed: kernels beside the limits of this machine, models beside another setting or llama.cpp");
  command->require_subcommand(1);
  std::vector<std::pair<CLI::App*, Command>> parts;
  parts.reserve(5);
  for (const auto add : {add_bench_op, add_bench_decode, add_bench_prefill, add_bench_load, add_bench_soak}) {
    Command part = add(*command);
    parts.emplace_back(command->get_subcommands([](const CLI::App*) { return true; }).back(), std::move(part));
  }
  return [parts]() -> Result<int> {
    for (const auto& [part, run] : parts) {
      if (part->parsed()) return run();
    }
    return 2;
  };
}

}  // namespace nibble::apps
