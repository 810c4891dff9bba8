// Flags that every command with a model shares.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "engine/session.h"
#include "measure/subject.h"

namespace nibble::apps {

struct ModelFlags {
  std::string model;
  std::string backend = "auto";
  std::string isa = "auto";
  int n_threads = 0;
  std::string pin = "auto";
  std::string contract;
  std::string lane;
  int n_ctx = 0;
  int prefill_chunk = engine::SessionOptions{}.prefill_chunk;

  void add_model(CLI::App& command);    // the positional MODEL
  void add_machine(CLI::App& command);  // --backend --isa --threads --pin
  void add_backend(CLI::App& command);  // --backend --isa
  // --contract; with `with_float` also float arithmetic, which takes any GGUF.
  void add_contract(CLI::App& command, bool with_float = false);
  void add_session(CLI::App& command);                              // --contract --lane --ctx --chunk
  void add_cache(CLI::App& command, const std::string& about_ctx);  // --ctx --chunk

  measure::Subject subject() const;
  engine::LoadOptions load_options() const;
  engine::SessionOptions session_options() const { return {.n_ctx = n_ctx, .prefill_chunk = prefill_chunk}; }
};

// A choice that was made for the user, on stderr.
void say_note(const std::string& note);
// A bar on a terminal where loading takes more than half a second; otherwise nothing.
model::WeightProgress weight_bar();

void add_threads(CLI::App& command, int& n_threads);
// --pin: "auto" or "off".
void add_pin(CLI::App& command, std::string& pin);

// --backend: takes every backend that nibble knows, so that one that is not here can say why, and lists those that are.
void add_backend_choice(CLI::App& command, std::string& backend, bool takes_auto, const std::string& about);
// What --isa takes.
std::vector<std::string> isa_choices();
// KEY=VALUE,... of measure::with_settings, checked as far as no file is needed.
CLI::Option* add_settings(CLI::App& command, const std::string& flag, std::string& settings,
                          const std::string& description);

}  // namespace nibble::apps
