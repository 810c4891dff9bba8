// nibble bench soak: the same prompts for an hour; one digest each, and memory that stays as it is.
#include <fmt/format.h>

#include <memory>

#include "apps/bench_commands.h"
#include "apps/console.h"
#include "apps/model_flags.h"
#include "apps/output_path.h"
#include "apps/usage.h"
#include "measure/soak.h"

namespace nibble::apps {
namespace {

using measure::Json;

struct SoakFlags {
  ModelFlags model;
  measure::SoakOptions options;
  double minutes = 60;
  int max_growth = 64;
  bool json = false;
  std::string output;
};

// A line a minute.
measure::SoakProgress progress_lines() {
  return [shown = -60.0](const measure::SoakState& state) mutable {
    if (state.seconds < shown + 60) return;
    shown = state.seconds;
    say("{:6.1f} min  {:8} runs  {:8.1f} MB resident\n", state.seconds / 60, state.runs,
        static_cast<double>(state.resident_bytes) * 1e-6);
  };
}

Result<int> soak(const SoakFlags& flags) {
  NIBBLE_TRY(check_output(flags.output, {flags.model.model}));
  measure::SoakOptions options = flags.options;
  options.seconds = 60 * flags.minutes;
  options.max_growth_bytes = static_cast<std::uint64_t>(flags.max_growth) << 20;
  NIBBLE_ASSIGN(const Json receipt, measure::soak(flags.model.subject(), options, progress_lines()));
  if (!flags.output.empty()) NIBBLE_TRY(measure::write_json(receipt, flags.output));
  if (flags.json) write_out(receipt.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  const Json& resident = receipt["resident"];
  say("{} runs of {} prompts in {:.1f} min, {} loads: one digest a prompt; memory grew by {:.1f} MB from {:.1f} MB\n",
      receipt["runs"].get<std::uint64_t>(), receipt["prompts"].size(), receipt["seconds"].get<double>() / 60,
      receipt["loads"].get<std::uint64_t>(), resident["growth_bytes"].get<double>() * 1e-6,
      resident["baseline_bytes"].get<double>() * 1e-6);
  if (receipt["passed"].get<bool>()) return 0;
  return Error{.message = "resident memory grew",
               .found = fmt::format("{} bytes", resident["growth_bytes"].get<std::uint64_t>()),
               .expected = fmt::format("at most {}", options.max_growth_bytes)};
}

}  // namespace

Command add_bench_soak(CLI::App& bench_command) {
  CLI::App* command = bench_command.add_subcommand(
      "soak", "An hour of mixed prompts, chunks, threads and cache states: one digest a prompt, steady memory");
  auto flags = std::make_shared<SoakFlags>();
  flags->model.add_model(*command);
  flags->model.add_backend(*command);
  add_numbers(*command, "--threads", flags->options.threads, "Thread counts, a load of the model each in turn", 1,
              1024);
  flags->model.add_contract(*command);
  add_number(*command, "--minutes", flags->minutes, "How long; at least until each thread count ran twice", 0.0, 1e5);
  add_number(*command, "--max-growth", flags->max_growth, "MiB by which resident memory may grow", 0, 1 << 20);
  command->add_flag("--json", flags->json, "The receipt on stdout");
  add_path(*command, "-o,--output", flags->output, "The receipt (JSON) into a file");
  return [flags] { return soak(*flags); };
}

}  // namespace nibble::apps
