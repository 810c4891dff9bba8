// Logits of every position of given token sequences, for comparison with other programs (tools/llama_reference.py).
// stdin: JSON, a list of lists of token ids. Output: f32, [sum of lengths, vocab_size], little-endian.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/machine.h"
#include "engine/session.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/registry.h"

namespace nibble {
namespace {

struct Flags {
  std::string model;
  std::string backend = "auto";
  std::string output;
  bool floats = false;
};

Result<std::unique_ptr<kernels::Backend>> choose_backend(const Flags& flags) {
  if (!flags.floats) return kernels::make_backend(flags.backend, {});
  return kernels::make_reference_backend({.activations = kernels::ReferenceActivations::kFloat,
                                          .attention = kernels::ReferenceAttention::kFloat,
                                          .n_threads = hardware_threads()});
}

Status dump(const Flags& flags) {
  const auto sequences = nlohmann::json::parse(std::cin).get<std::vector<std::vector<std::int32_t>>>();
  NIBBLE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(flags.model));
  NIBBLE_ASSIGN(auto backend, choose_backend(flags));
  NIBBLE_ASSIGN(const auto model,
                model::load_model(std::move(checkpoint), std::move(backend),
                                  flags.floats ? model::WeightForm::kFloat : model::WeightForm::kAsStored));
  std::ofstream out(flags.output, std::ios::binary);
  for (const std::vector<std::int32_t>& tokens : sequences) {
    NIBBLE_ASSIGN(const auto session,
                  engine::Session::create(*model, {.n_ctx = static_cast<int>(tokens.size()), .prefill_chunk = 64}));
    NIBBLE_TRY(session->prefill(tokens, [&out](std::int64_t, std::span<const float> logits) {
      out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
    }));
  }
  if (!out.flush()) return Error{.message = "cannot write", .file = flags.output};
  return ok_status();
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Flags flags;
  CLI::App app{"Logits of every position of the token sequences on stdin"};
  app.add_option("MODEL", flags.model)->required();
  app.add_option("--backend", flags.backend)->capture_default_str();
  app.add_flag("--float", flags.floats, "Float arithmetic on dequantized weights instead of the contract");
  app.add_option("-o,--output", flags.output)->required();
  CLI11_PARSE(app, argc, argv);
  const nibble::Status status = nibble::dump(flags);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.error().to_string());
  return status.ok() ? 0 : 1;
}
