// What ppl and compare share: texts, windows, gates, the receipt.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/model_flags.h"
#include "measure/quality.h"

namespace nibble::apps {

struct QualityFlags {
  std::vector<std::string> texts;
  measure::QualityOptions options;
  std::optional<double> max_perplexity;
  std::optional<double> max_kl;
  std::optional<double> min_top1;
  bool json = false;
  std::string output;

  void add(CLI::App& command);
  // Before any work: whether the receipt can be written and is neither a text nor one of `models`.
  Status check_output(std::vector<std::string> models) const;
  // Applies the gates, writes the receipt where it is wanted; exit status 0, or 3 where a gate failed.
  Result<int> finish(measure::Json& receipt, const std::vector<measure::Gate>& gates) const;
};

// A line of stderr that counts tokens, on a terminal.
measure::QualityProgress token_progress();

}  // namespace nibble::apps
