// Tokens per second of a whole model of a given shape with random weights, on any backend: single tokens at several
// context lengths, batches of sequences, prefill. The bytes that a token must read stand beside, so that a run can be
// held against the read bandwidth of its machine (--limit). With --contract nc1,native both run one after the other,
// and what exactness costs stands below.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "measure/facts.h"
#include "measure/statistics.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
using measure::Json;

constexpr const char* kNative = "native";

struct Flags {
  std::string backend = "auto";
  std::string shape = "llama-8b";
  std::vector<std::string> contracts = {"nc1"};
  int n_layers = 0;
  std::vector<int> contexts = {128, 4096};
  std::vector<int> batches = {8, 32, 64};
  std::vector<int> prompts = {512, 2048, 8192};
  int repetitions = 20;
  bool wide_head = false;
  double limit = 0;
  std::string output;
};

model::Config config_of(const Flags& flags) {
  const bool is_8b = flags.shape == "llama-8b";
  model::Config c;
  c.architecture = model::find_architecture("llama");
  c.n_layers = flags.n_layers > 0 ? flags.n_layers : is_8b ? 32 : 16;
  c.d_model = is_8b ? 4096 : 2048;
  c.d_ff = is_8b ? 14336 : 8192;
  c.n_heads = 32;
  c.n_kv_heads = 8;
  c.head_dim = c.d_model / c.n_heads;
  c.score_width = c.head_dim;
  c.vocab_size = 128256;
  c.context_length = 131072;
  c.rms_norm_eps = 1e-5F;
  c.rope.rotary_dim = c.head_dim;
  c.rope.freq_base = 500000;
  return c;
}

// Random bytes for the largest matrix; every layer is made of them, each with a copy of its own where the backend
// copies.
class RandomWeights {
 public:
  RandomWeights(const model::Config& config, kernels::Backend& backend, bool wide_head)
      : c_(config), backend_(backend), wide_head_(wide_head) {
    const std::size_t largest = static_cast<std::size_t>(std::max(c_.vocab_size, c_.d_ff)) * c_.d_model;
    codes_.resize(largest / 2);
    scales_.resize(largest / 16);
    halves_.resize(static_cast<std::size_t>(c_.vocab_size) * c_.d_model);
    for (std::uint8_t& code : codes_) code = next();
    for (std::uint8_t& scale : scales_) scale = static_cast<std::uint8_t>(0x30 + next() % 16);
    for (std::uint16_t& half : halves_) half = static_cast<std::uint16_t>((next() & 0x83) << 8 | 0x2400 | next());
  }

  Result<model::Weights> make() {
    bytes_ = 0;
    model::Weights w;
    const TensorView table{"embedding",
                           DType::kF16,
                           {static_cast<std::uint64_t>(c_.d_model), static_cast<std::uint64_t>(c_.vocab_size)},
                           std::as_bytes(std::span<const std::uint16_t>(halves_))};
    NIBBLE_ASSIGN(w.embedding, backend_.make_embedding(table));
    for (int i = 0; i < c_.n_layers; ++i) {
      model::LayerWeights layer;
      layer.attn_norm = ones();
      layer.ffn_norm = ones();
      NIBBLE_ASSIGN(layer.q, matrix(c_.n_heads * c_.head_dim, c_.d_model));
      NIBBLE_ASSIGN(layer.k, matrix(c_.n_kv_heads * c_.head_dim, c_.d_model));
      NIBBLE_ASSIGN(layer.v, matrix(c_.n_kv_heads * c_.head_dim, c_.d_model));
      NIBBLE_ASSIGN(layer.attn_output, matrix(c_.d_model, c_.n_heads * c_.head_dim));
      NIBBLE_ASSIGN(layer.gate, matrix(c_.d_ff, c_.d_model));
      NIBBLE_ASSIGN(layer.up, matrix(c_.d_ff, c_.d_model));
      NIBBLE_ASSIGN(layer.down, matrix(c_.d_model, c_.d_ff));
      w.layers.push_back(std::move(layer));
    }
    w.output_norm = ones();
    if (wide_head_) {
      NIBBLE_ASSIGN(w.output, backend_.make_linear(table));
      bytes_ += table.bytes.size();
    } else {
      NIBBLE_ASSIGN(w.output, matrix(c_.vocab_size, c_.d_model));
    }
    return w;
  }
  std::size_t bytes_per_token() const { return bytes_; }

 private:
  std::uint8_t next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint8_t>(state_ >> 56);
  }
  std::unique_ptr<kernels::Buffer> ones() { return backend_.make_vector(std::vector<float>(c_.d_model, 1.0F)); }
  Result<std::unique_ptr<kernels::Linear>> matrix(int n_out, int n_in) {
    const std::size_t n = static_cast<std::size_t>(n_out) * n_in;
    bytes_ += n / 2 + n / 16;
    const float spread = 0.02F;
    return backend_.make_linear(Nvfp4View{"w",
                                          static_cast<std::uint64_t>(n_out),
                                          static_cast<std::uint64_t>(n_in),
                                          std::span(codes_).first(n / 2),
                                          std::span(scales_).first(n / 16),
                                          spread,
                                          {}});
  }

  const model::Config& c_;
  kernels::Backend& backend_;
  std::vector<std::uint8_t> codes_, scales_;
  std::vector<std::uint16_t> halves_;
  bool wide_head_;
  std::size_t bytes_ = 0;
  std::uint64_t state_ = 7;
};

constexpr int kWarmUp = 4;  // the first steps load kernels and record graphs

class Bench {
 public:
  Bench(const Flags& flags, const std::string& contract, const model::Config& config, const model::Weights& weights,
        kernels::Backend& backend, std::size_t bytes_per_token)
      : flags_(flags),
        contract_(contract),
        config_(config),
        weights_(weights),
        backend_(backend),
        bytes_(bytes_per_token) {
    const int most = flags.batches.empty() ? 1 : std::max(1, std::ranges::max(flags.batches));
    logits_.resize(static_cast<std::size_t>(most) * config.vocab_size);
  }

  Status run() {
    for (const int context : flags_.contexts) NIBBLE_TRY(decode(1, context));
    for (const int batch : flags_.batches) NIBBLE_TRY(decode(batch, 128));
    for (const int prompt : flags_.prompts) NIBBLE_TRY(prefill(prompt));
    return ok_status();
  }
  const Json& results() const { return results_; }

 private:
  std::unique_ptr<kernels::KvCache> cache(int capacity) {
    return backend_.make_kv_cache({config_.n_layers, config_.n_kv_heads, config_.head_dim, capacity});
  }

  // One step of `rows`, one per sequence or many of one; seconds.
  Result<double> step(model::Transformer& transformer, const std::vector<kernels::TokenRow>& rows, bool all_logits) {
    std::vector<std::int32_t> tokens, wanted;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      tokens.push_back(static_cast<std::int32_t>((977 * i + rows[i].pos) % config_.vocab_size));
      if (all_logits || i + 1 == rows.size()) wanted.push_back(static_cast<std::int32_t>(i));
    }
    const std::span<float> logits(logits_.data(), wanted.size() * config_.vocab_size);
    const auto start = Clock::now();
    NIBBLE_TRY(transformer.forward({.tokens = tokens, .rows = rows, .logit_rows = wanted}, logits));
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  Status fill(model::Transformer& transformer, kernels::KvCache& to, int n) {
    for (int first = 0; first < n; first += transformer.max_rows()) {
      std::vector<kernels::TokenRow> rows;
      for (int pos = first; pos < std::min(n, first + transformer.max_rows()); ++pos) rows.push_back({&to, pos});
      NIBBLE_TRY(step(transformer, rows, false));
    }
    return ok_status();
  }

  Status decode(int n_sequences, int context) {
    const int capacity = context + kWarmUp + flags_.repetitions;
    model::Transformer transformer(config_, weights_, backend_, std::max(n_sequences, 512), capacity);
    std::vector<std::unique_ptr<kernels::KvCache>> caches;
    for (int i = 0; i < n_sequences; ++i) {
      caches.push_back(cache(capacity));
      NIBBLE_TRY(fill(transformer, *caches.back(), context));
    }
    std::vector<double> seconds;
    for (int i = 0; i < kWarmUp + flags_.repetitions; ++i) {
      std::vector<kernels::TokenRow> rows;
      for (const auto& c : caches) rows.push_back({c.get(), context + i});
      NIBBLE_ASSIGN(const double s, step(transformer, rows, true));
      if (i >= kWarmUp) seconds.push_back(s);
    }
    report("decode", n_sequences, context, seconds, n_sequences);
    return ok_status();
  }

  Status prefill(int n) {
    model::Transformer transformer(config_, weights_, backend_, n, n);
    std::vector<double> seconds;
    const auto to = cache(n);
    for (int i = 0; i < kWarmUp + flags_.repetitions; ++i) {
      std::vector<kernels::TokenRow> rows;
      for (int pos = 0; pos < n; ++pos) rows.push_back({to.get(), pos});
      NIBBLE_ASSIGN(const double s, step(transformer, rows, false));
      if (i >= kWarmUp) seconds.push_back(s);
    }
    report("prefill", 1, n, seconds, n);
    return ok_status();
  }

  void report(const char* what, int sequences, int context, const std::vector<double>& seconds, int tokens) {
    const double median = measure::median(seconds), gb_per_s = static_cast<double>(bytes_) / median * 1e-9;
    const auto [least, most] = std::ranges::minmax(seconds);
    Json entry = {{"what", what},          {"contract", contract_},     {"sequences", sequences},
                  {"context", context},    {"ms_median", median * 1e3}, {"ms_least", least * 1e3},
                  {"ms_most", most * 1e3}, {"samples_s", seconds},      {"tokens_per_second", tokens / median}};
    std::string share;
    if (std::string(what) == "decode") {
      entry["weight_gb_per_s"] = gb_per_s;
      share = fmt::format("  {:7.1f} GB/s of weights", gb_per_s);
      if (flags_.limit > 0) {
        entry["share_of_limit"] = gb_per_s / flags_.limit;
        share += fmt::format(", {:.1f} % of {:.0f}", 100 * gb_per_s / flags_.limit, flags_.limit);
      }
    }
    fmt::print("{:6} {:8} {:3} sequences, context {:6}  {:9.3f} ms [{:.3f}, {:.3f}]  {:10.1f} tok/s{}\n", contract_,
               what, sequences, context, median * 1e3, least * 1e3, most * 1e3, tokens / median, share);
    std::fflush(stdout);
    results_.push_back(std::move(entry));
  }

  const Flags& flags_;
  const std::string& contract_;
  const model::Config& config_;
  const model::Weights& weights_;
  kernels::Backend& backend_;
  std::size_t bytes_;
  Json results_ = Json::array();
  std::vector<float> logits_;  // [rows of a step, vocab_size]
};

// What exactness costs: the times of each contract beside those of `native`, where both were measured.
Json costs_of(const Json& results) {
  Json costs = Json::array();
  const auto is_same = [](const Json& a, const Json& b) {
    return a["what"] == b["what"] && a["sequences"] == b["sequences"] && a["context"] == b["context"];
  };
  for (const Json& exact : results) {
    if (exact["contract"] == kNative) continue;
    for (const Json& native : results) {
      if (native["contract"] != kNative || !is_same(exact, native)) continue;
      const double ratio = exact["ms_median"].get<double>() / native["ms_median"].get<double>();
      fmt::print("{} takes {:.2f} times as long as native: {} of {} sequences, context {}\n",
                 exact["contract"].get<std::string>(), ratio, exact["what"].get<std::string>(),
                 exact["sequences"].get<int>(), exact["context"].get<int>());
      costs.push_back({{"what", exact["what"]},
                       {"sequences", exact["sequences"]},
                       {"context", exact["context"]},
                       {"contract", exact["contract"]},
                       {"time_over_native", ratio}});
    }
  }
  return costs;
}

Status run(const Flags& flags) {
  const model::Config config = config_of(flags);
  NIBBLE_ASSIGN(const auto backend, kernels::make_backend(flags.backend, {}));
  RandomWeights random(config, *backend, flags.wide_head);
  Json results = Json::array();
  for (const std::string& contract : flags.contracts) {
    NIBBLE_TRY(backend->use_activations(contract == kNative ? kernels::ActivationFormat::kNative
                                                            : kernels::ActivationFormat::kA11));
    NIBBLE_ASSIGN(const model::Weights weights, random.make());
    fmt::print("{}, {} layers, {} head, {:.3f} GB of weights a token, {} on {}\n", flags.shape, config.n_layers,
               flags.wide_head ? "F16" : "NVFP4", static_cast<double>(random.bytes_per_token()) * 1e-9, contract,
               backend->description());
    Bench bench(flags, contract, config, weights, *backend, random.bytes_per_token());
    NIBBLE_TRY(bench.run());
    for (const Json& entry : bench.results()) results.push_back(entry);
  }
  const Json costs = costs_of(results);
  if (!flags.output.empty()) {
    Json receipt = {{"what", "whole model of random weights"},
                    {"shape", flags.shape},
                    {"layers", config.n_layers},
                    {"head", flags.wide_head ? "F16" : "NVFP4"},
                    {"bytes_per_token", random.bytes_per_token()},
                    {"read_limit_gb_per_s", flags.limit},
                    {"machine", backend->description()},
                    {"results", results}};
    receipt.update(measure::program_facts());
    receipt["host"] = measure::machine_facts();
    if (!costs.empty()) receipt["cost_of_exactness"] = costs;
    NIBBLE_TRY(measure::write_json(receipt, flags.output));
  }
  return ok_status();
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Flags flags;
  CLI::App app{"Tokens per second of a model of random weights"};
  app.add_option("--backend", flags.backend)->capture_default_str();
  app.add_option("--shape", flags.shape, "llama-8b or llama-1b")->capture_default_str();
  app.add_option("--contract", flags.contracts, "nc1, native, or both: what exactness costs")
      ->delimiter(',')
      ->check(CLI::IsMember({"nc1", nibble::kNative}))
      ->capture_default_str();
  app.add_option("--layers", flags.n_layers, "Default: all of the shape");
  app.add_option("--context", flags.contexts)->delimiter(',')->capture_default_str();
  app.add_option("--batch", flags.batches)->delimiter(',')->capture_default_str();
  app.add_option("--prompt", flags.prompts)->delimiter(',')->capture_default_str();
  app.add_option("-n", flags.repetitions, "Steps that count")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--wide-head", flags.wide_head, "An F16 head instead of an NVFP4 one");
  app.add_option("--limit", flags.limit, "Read bandwidth of this machine in GB/s");
  app.add_option("-o,--output", flags.output, "Receipt (JSON)");
  CLI11_PARSE(app, argc, argv);
  const nibble::Status status = nibble::run(flags);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.error().to_string());
  return status.ok() ? 0 : 1;
}
