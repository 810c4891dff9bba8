#include "apps/quality_flags.h"

#include <unistd.h>

#include "apps/console.h"

namespace nibble::apps {

void QualityFlags::add(CLI::App& command) {
  command.add_option("-f,--file", texts, "Texts, each a class of content by its file's name")->required();
  command.add_option("--window", options.window, "Tokens of a window, which starts from an empty cache")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command.add_option("--stride", options.stride, "Tokens from one window to the next; 0: the window")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--max-tokens", options.max_tokens, "Only the first tokens of each text; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--max-ppl", max_perplexity, "Gate: perplexity of every class at most this");
  command.add_flag("--json", json, "The receipt on stdout");
  command.add_option("-o,--output", output, "The receipt (JSON) into a file");
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
