// Measures what the contract's arithmetic costs on a real model (docs/contract.md, "The measurement that froze nc1"):
// KL of the next-token distributions, position by position, over prose, code, tables and one long context; and, per
// layer and head, the error that each quantizer makes on the float model's own values. Prints tables, writes a receipt.
//
// Float weights are the file's, dequantized. Each class is cut into windows that start from an empty cache. Stages:
//   source weights, float arithmetic                    the reference
//   source weights: a11 alone, attention alone, nc1     against the reference: the arithmetic alone
//   NVFP4 weights, float arithmetic                     against the reference: what the weights cost
//   NVFP4 weights, nc1                                  against NVFP4 weights in float arithmetic
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/thread_pool.h"
#include "engine/vocabulary_from_gguf.h"
#include "kernels/reference/probe_backend.h"
#include "kernels/reference/reference_backend.h"
#include "model/model.h"
#include "model/transformer.h"
#include "quantize/quantize_model.h"
#include "text/tokenizer.h"

namespace {

using namespace nibble;
using kernels::ReferenceActivations;
using kernels::ReferenceAttention;
using nlohmann::ordered_json;

constexpr int kChunk = 256;  // rows of one step

struct Options {
  std::string model;
  std::vector<std::string> texts;  // NAME=PATH
  int window = 1024;
  int windows = 2;
  int long_context = 8192;
  int long_stride = 8;  // logits of every so many positions of the long context
  int probe_tokens = 512;
  int threads = 2;
  std::string json;
};

template <typename T>
T value_or_exit(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.error().to_string());
    std::exit(1);
  }
  return std::move(result).value();
}

void ok_or_exit(Status status) {
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", status.error().to_string());
    std::exit(1);
  }
}

// A run of tokens from an empty cache, with logits at every `stride`th position.
struct Window {
  std::string content;
  std::vector<std::int32_t> tokens = {};
  int stride = 1;
  bool is_long = false;               // left out of the stages that only tell parts of the cost apart
  std::vector<float> reference = {};  // [n_logits, vocab_size], once a stage has made them
};

struct Text {
  std::string name;
  std::string sha256;
  std::vector<std::int32_t> tokens;
};

Text read_text(const std::string& spec, const text::Tokenizer& tokenizer) {
  const std::size_t equals = spec.find('=');
  const std::string path = spec.substr(equals + 1);
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (equals == std::string::npos || content.empty()) {
    fmt::print(stderr, "--text takes NAME=PATH of a text that is not empty; found {}\n", spec);
    std::exit(1);
  }
  auto tokens = value_or_exit(tokenizer.encode(content, {.add_special = false}));
  tokenizer.put_bos(tokens);
  return {spec.substr(0, equals), sha256_hex(std::as_bytes(std::span(content))), std::move(tokens)};
}

std::vector<Window> cut_windows(const Options& options, const std::vector<Text>& texts,
                                const text::Tokenizer& tokenizer) {
  std::vector<Window> windows;
  for (const Text& text : texts) {
    for (int i = 0; i < options.windows; ++i) {
      const auto first = text.tokens.begin() + std::min<std::ptrdiff_t>(i * options.window, std::ssize(text.tokens));
      const auto last = first + std::min<std::ptrdiff_t>(options.window, text.tokens.end() - first);
      if (last - first > 64) windows.push_back({text.name, {first, last}});
    }
  }
  Window all{
      .content = fmt::format("context {}", options.long_context), .stride = options.long_stride, .is_long = true};
  for (int round = 0; std::ssize(all.tokens) < options.long_context && round < 64; ++round) {
    const Text& text = texts[round % texts.size()];  // pieces of all texts in turn, as a long chat mixes them
    const std::ptrdiff_t piece = 1024;
    const std::ptrdiff_t at = std::min<std::ptrdiff_t>(round / std::ssize(texts) * piece, std::ssize(text.tokens));
    const std::ptrdiff_t n =
        std::min({piece, std::ssize(text.tokens) - at, options.long_context - std::ssize(all.tokens)});
    all.tokens.insert(all.tokens.end(), text.tokens.begin() + at, text.tokens.begin() + at + n);
  }
  if (std::ssize(all.tokens) == options.long_context) windows.push_back(std::move(all));
  for (Window& window : windows) tokenizer.put_bos(window.tokens);
  return windows;
}

// Logits [n_logits, vocab_size] of a window, in steps of kChunk rows; `use` gets the first position's index and rows.
template <typename F>
void run_window(const model::Config& config, model::Transformer& transformer, kernels::Backend& backend,
                const Window& window, F use) {
  const int n = static_cast<int>(window.tokens.size());
  const auto cache = backend.make_kv_cache({config.n_layers, config.n_kv_heads, config.head_dim, n});
  std::vector<float> logits;
  for (int first = 0; first < n; first += kChunk) {
    const int n_rows = std::min(kChunk, n - first);
    std::vector<kernels::TokenRow> rows;
    std::vector<std::int32_t> wanted;
    for (int i = 0; i < n_rows; ++i) {
      rows.push_back({cache.get(), first + i});
      if (window.stride > 0 && (first + i) % window.stride == window.stride - 1) wanted.push_back(i);
    }
    logits.resize(wanted.size() * config.vocab_size);
    ok_or_exit(transformer.forward({std::span(window.tokens).subspan(first, n_rows), rows, wanted}, logits));
    use(first, wanted, std::span<const float>(logits));
  }
}

double log_sum_exp(std::span<const float> logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  return max + std::log(sum);
}

// Figures of one position.
struct Position {
  double kl = 0;
  bool same_top = false;
  double nll = 0;  // of the token that follows, under the distribution found
  double reference_nll = 0;
};

Position compare(std::span<const float> reference, std::span<const float> found, int next) {
  const double p_norm = log_sum_exp(reference);
  const double q_norm = log_sum_exp(found);
  Position out;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double log_p = reference[i] - p_norm;
    out.kl += std::exp(log_p) * (log_p - (found[i] - q_norm));
  }
  out.same_top =
      std::ranges::max_element(reference) - reference.begin() == std::ranges::max_element(found) - found.begin();
  out.nll = next < 0 ? 0 : q_norm - found[next];
  out.reference_nll = next < 0 ? 0 : p_norm - reference[next];
  return out;
}

ordered_json summary_of(std::vector<Position> positions) {
  double kl = 0, nll = 0, reference_nll = 0;
  int same = 0;
  for (const Position& p : positions) {
    kl += p.kl;
    same += p.same_top;
    nll += p.nll;
    reference_nll += p.reference_nll;
  }
  std::ranges::sort(positions, {}, &Position::kl);
  const double n = static_cast<double>(positions.size());
  return {{"positions", positions.size()},
          {"kl_mean", kl / n},
          {"kl_p99", positions[static_cast<std::size_t>(0.99 * (n - 1))].kl},
          {"kl_max", positions.back().kl},
          {"top1", same / n},
          {"perplexity", std::exp(nll / n)},
          {"reference_perplexity", std::exp(reference_nll / n)}};
}

// Runs all windows in one arithmetic. Where a window has no reference yet, or `replace`, its logits become it.
// The result maps content class ("all" too) to its figures against the reference that was there.
ordered_json run_stage(const std::string& title, const model::Config& config, const model::Weights& weights,
                       const kernels::ReferenceOptions& arithmetic, std::vector<Window>& windows, bool keep,
                       bool with_long = true) {
  const auto start = std::chrono::steady_clock::now();
  const auto backend = kernels::make_reference_backend(arithmetic);
  ThreadPool pool(arithmetic.n_threads);
  std::size_t longest = 0;
  for (const Window& w : windows) longest = std::max(longest, w.tokens.size());
  model::Transformer transformer(config, weights, *backend, kChunk, static_cast<int>(longest));
  std::vector<std::pair<std::string, std::vector<Position>>> classes = {{"all", {}}};
  const auto positions_of = [&](const std::string& name) -> std::vector<Position>& {
    const auto it = std::ranges::find(classes, name, &std::pair<std::string, std::vector<Position>>::first);
    return it != classes.end() ? it->second : classes.emplace_back(name, std::vector<Position>{}).second;
  };
  const std::size_t vocab = config.vocab_size;
  for (Window& window : windows) {
    if (window.is_long && !with_long) continue;
    const bool has_reference = !window.reference.empty();
    window.reference.reserve(window.tokens.size() / window.stride * vocab);
    std::size_t done = 0;
    run_window(config, transformer, *backend, window,
               [&](int first, const std::vector<std::int32_t>& rows, std::span<const float> logits) {
                 if (has_reference) {
                   std::vector<Position> found(rows.size());
                   pool.parallel_for(rows.size(), 1, [&](std::size_t begin, std::size_t end, int) {
                     for (std::size_t i = begin; i < end; ++i) {
                       const std::size_t pos = first + rows[i];
                       const int next = pos + 1 < window.tokens.size() ? window.tokens[pos + 1] : -1;
                       found[i] = compare(std::span(window.reference).subspan((done + i) * vocab, vocab),
                                          logits.subspan(i * vocab, vocab), next);
                     }
                   });
                   for (const std::string& name : {window.content, std::string("all")}) {
                     std::ranges::copy(found, std::back_inserter(positions_of(name)));
                   }
                 }
                 if (keep && has_reference) {
                   std::ranges::copy(logits, window.reference.begin() + static_cast<std::ptrdiff_t>(done * vocab));
                 } else if (keep) {
                   window.reference.insert(window.reference.end(), logits.begin(), logits.end());
                 }
                 done += rows.size();
               });
  }
  ordered_json out;
  for (auto& [name, positions] : classes) {
    if (!positions.empty()) out[name] = summary_of(std::move(positions));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} [{:.0f} s]\n", title, seconds);
  for (const auto& [name, f] : out.items()) {
    fmt::print("  {:<14} KL mean {:.2e}  p99 {:.2e}  max {:.2e}  top-1 {:.4f}  ppl {:.3f} (reference {:.3f})  n {}\n",
               name, f["kl_mean"].get<double>(), f["kl_p99"].get<double>(), f["kl_max"].get<double>(),
               f["top1"].get<double>(), f["perplexity"].get<double>(), f["reference_perplexity"].get<double>(),
               f["positions"].get<int>());
  }
  std::fflush(stdout);
  return out;
}

const char* probe_name(kernels::ProbeKind kind) {
  switch (kind) {
    case kernels::ProbeKind::kQuery:
      return "q, 9 bit";
    case kernels::ProbeKind::kKey:
      return "k, 11 bit";
    case kernels::ProbeKind::kValue:
      return "v, 8 bit";
    case kernels::ProbeKind::kAttention:
      return "attention output";
    case kernels::ProbeKind::kInput:
      return "activations, 11 bit";
  }
  return "";
}

std::string place(const kernels::ProbeFigure& figure) {
  static constexpr const char* kSites[] = {"q/k/v", "attn_output", "gate/up", "down"};
  return figure.kind == kernels::ProbeKind::kInput ? fmt::format("layer {} {}", figure.layer, kSites[figure.index])
                                                   : fmt::format("layer {} head {}", figure.layer, figure.index);
}

ordered_json run_probe(const model::Config& config, const model::Weights& weights, const std::vector<Text>& texts,
                       const Options& options) {
  const auto probe = kernels::make_probe_backend(options.threads);
  model::Transformer transformer(config, weights, *probe, kChunk, options.probe_tokens);
  for (const Text& text : texts) {
    const std::ptrdiff_t n = std::min<std::ptrdiff_t>(options.probe_tokens, std::ssize(text.tokens));
    const Window window{.content = text.name, .tokens = {text.tokens.begin(), text.tokens.begin() + n}, .stride = 0};
    run_window(config, transformer, *probe, window, [](auto&&...) {});
  }
  std::vector<kernels::ProbeFigure> figures = probe->figures();
  fmt::print("relative RMS error on the float model's values, {} tokens a text\n", options.probe_tokens);
  ordered_json out;
  using kernels::ProbeKind;
  for (const ProbeKind kind :
       {ProbeKind::kInput, ProbeKind::kQuery, ProbeKind::kKey, ProbeKind::kValue, ProbeKind::kAttention}) {
    std::vector<kernels::ProbeFigure> some;
    std::ranges::copy_if(figures, std::back_inserter(some), [&](const auto& f) { return f.kind == kind; });
    std::ranges::sort(some, std::greater<>{}, [](const auto& f) { return f.error.relative_rms(); });
    const double median = some[some.size() / 2].error.relative_rms();
    fmt::print("  {:<20} median {:.2e}; worst:", probe_name(kind), median);
    ordered_json all;
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (i < 3) fmt::print(" {:.2e} at {};", some[i].error.relative_rms(), place(some[i]));
      all[place(some[i])] = std::stod(fmt::format("{:.3g}", some[i].error.relative_rms()));
    }
    fmt::print("\n");
    out[probe_name(kind)] = {{"median", median}, {"worst_first", all}};
  }
  std::fflush(stdout);
  return out;
}

std::unique_ptr<model::Model> load(const std::string& path, model::WeightForm form,
                                   const kernels::ReferenceOptions& options) {
  return value_or_exit(
      model::load_model(value_or_exit(Checkpoint::open(path)), kernels::make_reference_backend(options), form));
}

// The rule: the arithmetic alone costs less than 5e-4 nats on every class and less than 1 % of what the weights cost.
ordered_json judge(const ordered_json& stages) {
  const ordered_json& alone = stages["source weights, nc1"];
  const ordered_json& weights = stages["NVFP4 weights, float"];
  double worst = 0, worst_share = 0;
  for (const auto& [name, figures] : alone.items()) {
    const double kl = figures["kl_mean"];
    worst = std::max(worst, kl);
    worst_share = std::max(worst_share, kl / weights[name]["kl_mean"].get<double>());
  }
  const bool met = worst < 5e-4 && worst_share < 0.01;
  fmt::print("rule: worst class {:.2e} nats (limit 5e-4), worst share of the weights' cost {:.2f} % (limit 1 %): {}\n",
             worst, worst_share * 100, met ? "met" : "NOT MET");
  return {{"worst_kl_mean", worst}, {"worst_share_of_weight_cost", worst_share}, {"met", met}};
}

int run(const Options& options) {
  const kernels::ReferenceOptions plain{ReferenceActivations::kFloat, ReferenceAttention::kFloat, true,
                                        options.threads};
  const kernels::ReferenceOptions a11{ReferenceActivations::kA11, ReferenceAttention::kFloat, true, options.threads};
  const kernels::ReferenceOptions attention{ReferenceActivations::kFloat, ReferenceAttention::kInteger, true,
                                            options.threads};
  const kernels::ReferenceOptions nc1{ReferenceActivations::kA11, ReferenceAttention::kInteger, true, options.threads};

  ordered_json receipt = {{"what", "cost of contract nc1"},
                          {"model_sha256", value_or_exit(sha256_file(options.model))}};
  receipt["window"] = options.window;
  receipt["windows_of_a_text"] = options.windows;
  receipt["long_context"] = options.long_context;
  receipt["long_stride"] = options.long_stride;
  receipt["model"] = std::filesystem::path(options.model).filename().string();
  ordered_json stages;
  std::vector<Window> windows;
  {
    const auto source = load(options.model, model::WeightForm::kFloat, plain);
    const auto tokenizer =
        value_or_exit(text::Tokenizer::create(value_or_exit(engine::vocabulary_from_gguf(source->checkpoint.file()))));
    std::vector<Text> texts;
    for (const std::string& spec : options.texts) texts.push_back(read_text(spec, tokenizer));
    windows = cut_windows(options, texts, tokenizer);
    for (const Text& text : texts) {
      fmt::print("{}: {} tokens\n", text.name, text.tokens.size());
      receipt["texts"][text.name] = {{"sha256", text.sha256}, {"tokens", text.tokens.size()}};
    }
    receipt["per_layer_and_head"] = run_probe(source->config, source->weights, texts, options);
    run_stage("source weights, float", source->config, source->weights, plain, windows, true);
    const auto measure = [&](const char* title, const kernels::ReferenceOptions& arithmetic, bool with_long) {
      stages[title] = run_stage(title, source->config, source->weights, arithmetic, windows, false, with_long);
    };
    measure("source weights, a11", a11, false);
    measure("source weights, attention", attention, false);
    measure("source weights, nc1", nc1, true);
  }
  const std::string quantized =
      (std::filesystem::temp_directory_path() / fmt::format("nibble-measure-{}.gguf", ::getpid())).string();
  ThreadPool pool(options.threads);
  value_or_exit(quantize_model(options.model, quantized, {}, pool));
  for (const bool contract : {false, true}) {
    const char* title = contract ? "NVFP4 weights, nc1" : "NVFP4 weights, float";
    const auto weights = load(quantized, model::WeightForm::kAsStored, contract ? nc1 : plain);
    stages[title] =
        run_stage(title, weights->config, weights->weights, contract ? nc1 : plain, windows, !contract, !contract);
  }
  std::filesystem::remove(quantized);
  receipt["stages"] = stages;
  receipt["rule"] = judge(stages);
  if (!options.json.empty()) std::ofstream(options.json) << receipt.dump(1) << '\n';
  return receipt["rule"]["met"].get<bool>() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what contract nc1 costs on a model.");
  app.add_option("model", options.model, "GGUF file")->required();
  app.add_option("--text", options.texts, "NAME=PATH of a text; repeat")->required();
  app.add_option("--window", options.window, "tokens of a window")->capture_default_str();
  app.add_option("--windows", options.windows, "windows of a text")->capture_default_str();
  app.add_option("--long", options.long_context, "tokens of the one long context")->capture_default_str();
  app.add_option("--long-stride", options.long_stride, "compare every so many of its positions")->capture_default_str();
  app.add_option("--probe", options.probe_tokens, "tokens of a text for the figures of layers")->capture_default_str();
  app.add_option("--threads", options.threads)->capture_default_str();
  app.add_option("--json", options.json, "write a receipt");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
