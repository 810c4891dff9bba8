// What quantization costs: perplexity of a text under the source weights in float arithmetic and under the NVFP4 file
// in its contract, and the KL between them. Windows of fixed length, each from an empty cache.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "base/machine.h"
#include "engine/divergence.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "kernels/reference/reference_backend.h"

namespace nibble {
namespace {

struct Flags {
  std::string source;
  std::string quantized;
  std::string text;
  int window = 512;
  int max_tokens = 0;
  std::string output;
};

// The source as floats on the float oracle, and the NVFP4 file as users run it.
struct Pair {
  std::unique_ptr<model::Model> source;
  std::unique_ptr<engine::LoadedModel> quantized;
  std::unique_ptr<engine::Session> source_session;
  std::unique_ptr<engine::Session> quantized_session;
};

Result<Pair> open_pair(const Flags& flags) {
  Pair pair;
  NIBBLE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(flags.source));
  auto backend = kernels::make_reference_backend({.activations = kernels::ReferenceActivations::kFloat,
                                                  .attention = kernels::ReferenceAttention::kFloat,
                                                  .n_threads = hardware_threads()});
  NIBBLE_ASSIGN(pair.source, model::load_model(std::move(checkpoint), std::move(backend), model::WeightForm::kFloat));
  NIBBLE_ASSIGN(pair.quantized, engine::load(flags.quantized, {}));
  if (pair.source->config.vocab_size != pair.quantized->model->config.vocab_size) {
    return Error{.message = "the two files are not the same model",
                 .file = flags.quantized,
                 .found = fmt::format("{} tokens", pair.quantized->model->config.vocab_size),
                 .expected = fmt::format("{} tokens", pair.source->config.vocab_size)};
  }
  const engine::SessionOptions options = {.n_ctx = flags.window, .prefill_chunk = 64};
  NIBBLE_ASSIGN(pair.source_session, engine::Session::create(*pair.source, options));
  NIBBLE_ASSIGN(pair.quantized_session, engine::Session::create(*pair.quantized->model, options));
  return pair;
}

Result<std::vector<std::int32_t>> read_tokens(const Flags& flags, const text::Tokenizer& tokenizer) {
  std::ifstream in(flags.text, std::ios::binary);
  if (!in) return Error{.message = "cannot open the text", .file = flags.text};
  NIBBLE_ASSIGN(auto tokens, tokenizer.encode(std::string(std::istreambuf_iterator<char>(in), {})));
  if (flags.max_tokens > 0 && tokens.size() > static_cast<std::size_t>(flags.max_tokens))
    tokens.resize(flags.max_tokens);
  return tokens;
}

Status measure_window(Pair& pair, std::span<const std::int32_t> window, engine::Divergence& total) {
  const std::size_t vocab_size = pair.source_session->logits().size();
  std::vector<float> reference;  // [window, vocab_size]
  reference.reserve(window.size() * vocab_size);
  NIBBLE_TRY(pair.source_session->prefill(window, [&](std::int64_t, std::span<const float> logits) {
    reference.insert(reference.end(), logits.begin(), logits.end());
  }));
  return pair.quantized_session->prefill(window, [&](std::int64_t pos, std::span<const float> logits) {
    const std::size_t i = static_cast<std::size_t>(pos);
    const std::int32_t next = i + 1 < window.size() ? window[i + 1] : -1;
    total.add(std::span(reference).subspan(i * vocab_size, vocab_size), logits, next);
  });
}

Result<int> measure(const Flags& flags) {
  NIBBLE_ASSIGN(Pair pair, open_pair(flags));
  NIBBLE_ASSIGN(const auto tokens, read_tokens(flags, pair.quantized->tokenizer));
  engine::Divergence total;
  const auto start = std::chrono::steady_clock::now();
  const std::size_t window = static_cast<std::size_t>(flags.window);
  for (std::size_t first = 0; first < tokens.size(); first += window) {
    const auto piece = std::span(tokens).subspan(first, std::min(window, tokens.size() - first));
    pair.source_session->clear();  // every position is wanted, also those that a prefix of the last window would save
    pair.quantized_session->clear();
    NIBBLE_TRY(measure_window(pair, piece, total));
    fmt::print(stderr, "\r{} of {} tokens", first + piece.size(), tokens.size());
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "\r");
  fmt::print("text              {} ({} tokens, windows of {})\n", flags.text, tokens.size(), flags.window);
  fmt::print("perplexity        {:.3f} source weights, {:.3f} NVFP4\n", total.reference_perplexity(),
             total.candidate_perplexity());
  fmt::print("KL per token      mean {:.4f}, 99% {:.3f}, max {:.2f} nats\n", total.mean_kl(), total.kl_quantile(0.99),
             total.max_kl());
  fmt::print("same first choice {:.2f}% of positions   [{:.0f} s]\n", 100 * total.top1_agreement(), elapsed.count());
  if (!flags.output.empty()) {
    NIBBLE_ASSIGN(const std::string sha256, engine::model_sha256(pair.quantized->file()));
    const nlohmann::ordered_json json = {
        {"what", "quality of NVFP4 weights against the source weights"},
        {"source", pair.source->checkpoint.file().path().substr(pair.source->checkpoint.file().path().rfind('/') + 1)},
        {"quantized_sha256", sha256},
        {"contract", pair.quantized->contract},
        {"text", flags.text},
        {"tokens", tokens.size()},
        {"window", flags.window},
        {"source_perplexity", total.reference_perplexity()},
        {"nvfp4_perplexity", total.candidate_perplexity()},
        {"mean_kl", total.mean_kl()},
        {"p99_kl", total.kl_quantile(0.99)},
        {"max_kl", total.max_kl()},
        {"top1_agreement", total.top1_agreement()},
        {"cpu", cpu_model_name()},
        {"commit", kCommit}};
    std::ofstream(flags.output) << json.dump(1) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Flags flags;
  CLI::App app{"Perplexity of a text under source and NVFP4 weights, and the KL between them"};
  app.add_option("SOURCE", flags.source, "The model before quantization (.gguf)")->required();
  app.add_option("QUANTIZED", flags.quantized, "Its NVFP4 file (.gguf)")->required();
  app.add_option("-f,--file", flags.text, "The text")->required();
  app.add_option("--window", flags.window, "Tokens of a window")->check(CLI::Range(2, 1 << 20))->capture_default_str();
  app.add_option("--max-tokens", flags.max_tokens, "Only the first tokens of the text; 0: all")->capture_default_str();
  app.add_option("-o,--output", flags.output, "Receipt (JSON)");
  CLI11_PARSE(app, argc, argv);
  const nibble::Result<int> status = nibble::measure(flags);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.error().to_string());
  return status.ok() ? *status : 1;
}
