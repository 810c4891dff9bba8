// Flags of a completion, shared by run and chat.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/generate.h"

namespace nibble::apps {

struct GenerationFlags {
  int max_tokens = 256;
  engine::SamplingParams sampling;
  std::vector<std::string> stops;
  bool ignore_eos = false;

  void add(CLI::App& command);
  // What is wrong with the values, whatever the model: to be asked before one is loaded.
  std::optional<Error> fault() const;
  engine::GenerateRequest request(std::vector<std::int32_t> prompt) const;
};

}  // namespace nibble::apps
