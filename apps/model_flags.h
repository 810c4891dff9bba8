// Flags that every command with a model shares.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/loaded_model.h"
#include "engine/session.h"

namespace nibble::apps {

struct ModelFlags {
  std::string model;
  std::string backend = "auto";
  std::string isa = "auto";
  int n_threads = 0;
  std::string contract;
  std::string lane;
  int n_ctx = 0;
  int prefill_chunk = engine::SessionOptions{}.prefill_chunk;

  void add_model(CLI::App& command);                                // the positional MODEL
  void add_machine(CLI::App& command);                              // --backend --isa --threads
  void add_session(CLI::App& command);                              // --contract --lane --ctx --chunk
  void add_cache(CLI::App& command, const std::string& about_ctx);  // --ctx --chunk

  engine::LoadOptions load_options() const;
  engine::SessionOptions session_options() const { return {.n_ctx = n_ctx, .prefill_chunk = prefill_chunk}; }
};

void add_threads(CLI::App& command, int& n_threads);

}  // namespace nibble::apps
