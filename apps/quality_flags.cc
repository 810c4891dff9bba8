#include "apps/quality_flags.h"

#include <unistd.h>

#include "apps/console.h"
#include "apps/output_path.h"
#include "apps/usage.h"

namespace nibble::apps {

void QualityFlags::add(CLI::App& command) {
  add_path(command, "-f,--file", texts, "Texts, each a class of content by its file's name")->required();
  add_number(command, "--window", options.window, "Tokens of a window, which starts from an empty cache", 2, 1 << 20);
  add_number(command, "--stride", options.stride, "Tokens from one window to the next; 0: the window", 0, 1 << 20);
  add_number(command, "--max-tokens", options.max_tokens, "Only the first tokens of each text; 0: all", 0);
  add_number(command, "--max-ppl", max_perplexity, "Gate: perplexity of every class at most this", 0.0);
  command.add_flag("--json", json, "The receipt on stdout");
  add_path(command, "-o,--output", output, "The receipt (JSON) into a file");
  command.callback([this] {
    if (options.stride <= options.window) return;
    throw BadUsage({.message = "--stride cannot be more than --window: tokens would be left out",
                    .found = fmt::format("--stride {} --window {}", options.stride, options.window),
                    .expected = fmt::format("at most {}", options.window)});
  });
}

Status QualityFlags::check_output(std::vector<std::string> models) const {
  models.insert(models.end(), texts.begin(), texts.end());
  return apps::check_output(output, models);
}

Result<int> QualityFlags::finish(measure::Json& receipt, const std::vector<measure::Gate>& gates) const {
  const bool passed = measure::apply_gates(gates, receipt);
  if (!output.empty()) NIBBLE_TRY(measure::write_json(receipt, output));
  if (json) write_out(receipt.dump(1, ' ', false, measure::Json::error_handler_t::replace) + "\n");
  if (passed) return 0;
  for (const measure::Json& gate : receipt["gates"]) {
    if (gate["passed"]) continue;
    say("gate failed: {} is {:.6g} ({}), wanted {} {:.6g}\n", gate["field"].get<std::string>(),
        gate["worst"].get<double>(), gate["where"].get<std::string>(),
        gate.contains("at_most") ? "at most" : "at least",
        gate[gate.contains("at_most") ? "at_most" : "at_least"].get<double>());
  }
  return 3;
}

measure::QualityProgress token_progress() {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [](std::size_t done, std::size_t total) {
    say("\r{} of {} tokens{}", done, total, done == total ? "\r\x1b[K" : "");
  };
}

}  // namespace nibble::apps
