// Attention by itself on any backend: prompts of several lengths, beside FlashAttention (--peer, what
// tools/flash_attention.py wrote), and one token over long caches, beside the read bandwidth (--limit; of the cpu
// backend it is measured here). A step holds the op of several layers, each with a cache of its own, so that neither
// the L2 nor the start of a step is measured.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kernels/limits.h"
#include "kernels/registry.h"
#include "measure/facts.h"
#include "measure/statistics.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
using measure::Json;

constexpr int kRows = 512;  // that are stored at once
constexpr int kWarmUp = 4;

struct Flags {
  std::string backend = "auto";
  kernels::BackendOptions options;
  std::vector<int> shape = {32, 8, 128};  // heads, key-value heads, head_dim
  int layers = 8;
  std::vector<int> prompts = {2048, 8192};
  std::vector<int> contexts = {128, 4096, 32768};
  int repetitions = 20;
  double limit = 0;
  std::string peer, output;
};

std::vector<float> random_floats(std::size_t n) {
  std::vector<float> values(n);
  std::uint64_t state = 7;
  for (float& value : values) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<float>(state >> 40) * 0x1p-23F - 1.0F;
  }
  return values;
}

class Bench {
 public:
  Bench(const Flags& flags, kernels::Backend& backend) : flags_(flags), backend_(backend) {
    const auto width = [&](int heads) { return static_cast<std::size_t>(heads) * shape_.head_dim; };
    const int longest = std::max(std::ranges::max(flags.prompts), kRows);
    n_positions_ = std::max(longest, std::ranges::max(flags.contexts) + 64);
    rope_ = backend.make_rope_table(random_floats(n_positions_ * width(1)), shape_.head_dim, false);
    q_ = backend.make_vector(random_floats(longest * width(shape_.n_heads)));
    k_ = backend.make_vector(random_floats(longest * width(shape_.n_kv_heads)));
    v_ = backend.make_vector(random_floats(longest * width(shape_.n_kv_heads)));
    out_ = backend.make_buffer(longest * width(shape_.n_heads));
    input_ = backend.make_linear_input(longest, shape_.n_heads * shape_.head_dim);
  }

  Status run() {
    NIBBLE_ASSIGN(const Json peer, read_peer());
    for (const int prompt : flags_.prompts) prefill(prompt, peer);
    for (const int context : flags_.contexts) decode(context);
    return ok_status();
  }
  const Json& results() const { return results_; }

 private:
  Result<Json> read_peer() const {
    if (flags_.peer.empty()) return Json::object();
    std::ifstream in(flags_.peer);
    Json peer = Json::parse(in, nullptr, false);
    if (!peer.is_object()) return Error{.message = "not a receipt of flash_attention.py", .file = flags_.peer};
    return peer;
  }

  std::unique_ptr<kernels::KvCache> filled_cache(int n, int capacity) {
    auto cache = backend_.make_kv_cache({flags_.layers, shape_.n_kv_heads, shape_.head_dim, capacity});
    for (int first = 0; first < n; first += kRows) {
      const std::vector<kernels::TokenRow> rows = rows_of(*cache, first, std::min(n, first + kRows));
      backend_.begin_step(static_cast<int>(rows.size()));
      for (int layer = 0; layer < flags_.layers; ++layer) backend_.store_kv(k_->data(), v_->data(), rows, layer);
      backend_.end_step();
    }
    return cache;
  }

  static std::vector<kernels::TokenRow> rows_of(kernels::KvCache& cache, int first, int end) {
    std::vector<kernels::TokenRow> rows;
    for (int pos = first; pos < end; ++pos) rows.push_back({&cache, pos});
    return rows;
  }

  // Seconds a layer.
  template <typename Op>
  std::vector<double> time(int n_rows, const Op& op) {
    std::vector<double> seconds;
    for (int i = 0; i < kWarmUp + flags_.repetitions; ++i) {
      const auto start = Clock::now();
      backend_.begin_step(n_rows);
      for (int layer = 0; layer < flags_.layers; ++layer) op(i, layer);
      backend_.end_step();
      if (i >= kWarmUp) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / flags_.layers);
    }
    return seconds;
  }

  void prefill(int n, const Json& peer) {
    const auto cache = filled_cache(n, n);
    const std::vector<kernels::TokenRow> rows = rows_of(*cache, 0, n);
    const auto seconds = time(
        n, [&](int, int layer) { backend_.attention_input(q_->data(), rows, layer, shape_, out_->data(), *input_); });
    const double median = measure::median(seconds);
    Json entry = summary("prefill", n, seconds);
    const double rate = 2.0 * shape_.n_heads * shape_.head_dim * n * n / median * 1e-12;  // causal: half of 4 n^2 d
    entry["tflop_per_s"] = rate;
    std::string beside;
    for (const Json& other : peer.value("flash_attention", Json::array())) {
      if (other.value("tokens", 0) != n) continue;
      const double theirs = other.value("ms_median", 0.0);
      entry["flash_attention_ms"] = theirs;
      entry["share_of_flash_attention"] = theirs / (median * 1e3);
      beside = fmt::format(", {:.1f} % of FlashAttention ({:.3f} ms)", theirs / median * 0.1, theirs);
    }
    fmt::print("prefill {:6} tokens   {:8.3f} ms a layer, {:7.3g} TFLOP/s{}\n", n, median * 1e3, rate, beside);
    results_.push_back(std::move(entry));
  }

  // With rotation and the new key and value, as a step of decoding has it.
  void decode(int context) {
    const int capacity = context + kWarmUp + flags_.repetitions;
    const auto cache = filled_cache(context, capacity);
    const auto seconds = time(1, [&](int i, int layer) {
      const kernels::TokenRow row = {cache.get(), context + i};
      backend_.rope_attention_input(q_->data(), k_->data(), v_->data(), {&row, 1}, layer, *rope_, shape_, out_->data(),
                                    *input_);
    });
    const double bytes = static_cast<double>(shape_.n_kv_heads) * context * (3 * shape_.head_dim + 8);
    const double median = measure::median(seconds), rate = bytes / median * 1e-9;
    Json entry = summary("decode", context, seconds);
    entry["bytes"] = bytes;
    entry["gb_per_s"] = rate;
    std::string beside;
    if (flags_.limit > 0) {
      entry["share_of_limit"] = rate / flags_.limit;
      beside = fmt::format(", {:.1f} % of {:.0f}", 100 * rate / flags_.limit, flags_.limit);
    }
    fmt::print("decode over {:6}     {:8.3f} us a layer, {:6.0f} GB/s of cache{}\n", context, median * 1e6, rate,
               beside);
    std::fflush(stdout);
    results_.push_back(std::move(entry));
  }

  static Json summary(const char* what, int n, const std::vector<double>& seconds) {
    const auto [least, most] = std::ranges::minmax(seconds);
    return {{"what", what},
            {"tokens", n},
            {"us_median", measure::median(seconds) * 1e6},
            {"us_least", least * 1e6},
            {"us_most", most * 1e6},
            {"samples_s", seconds}};
  }

  const Flags& flags_;
  const kernels::AttentionShape shape_ = {flags_.shape[0], flags_.shape[1], flags_.shape[2], 0.08838834764F};
  kernels::Backend& backend_;
  int n_positions_ = 0;
  std::unique_ptr<kernels::RopeTable> rope_;
  std::unique_ptr<kernels::Buffer> q_, k_, v_, out_;
  std::unique_ptr<kernels::LinearInput> input_;
  Json results_ = Json::array();
};

Status run(Flags flags) {
  NIBBLE_ASSIGN(const auto backend, kernels::make_backend(flags.backend, flags.options));
  if (flags.limit == 0 && backend->name() == "cpu") {
    const int all = static_cast<int>(std::thread::hardware_concurrency());
    flags.limit = kernels::read_bandwidth(flags.options.n_threads > 0 ? flags.options.n_threads : all);
    fmt::print("{}: {} query heads, {} key-value heads of {}, {} layers; reads {:.1f} GB/s\n", backend->description(),
               flags.shape[0], flags.shape[1], flags.shape[2], flags.layers, flags.limit);
  }
  Bench bench(flags, *backend);
  NIBBLE_TRY(bench.run());
  if (!flags.output.empty()) {
    Json receipt = {
        {"what", fmt::format("attention by itself, {} query heads and {} key-value heads of {}, a step of {} layers",
                             flags.shape[0], flags.shape[1], flags.shape[2], flags.layers)},
        {"repetitions", flags.repetitions},
        {"read_limit_gb_per_s", flags.limit},
        {"machine", backend->description()},
        {"results", bench.results()}};
    receipt.update(measure::program_facts());
    receipt["host"] = measure::machine_facts();
    NIBBLE_TRY(measure::write_json(receipt, flags.output));
  }
  return ok_status();
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Flags flags;
  CLI::App app{"Attention beside FlashAttention and the read bandwidth"};
  app.add_option("--backend", flags.backend)->capture_default_str();
  app.add_option("--isa", flags.options.isa)->capture_default_str();
  app.add_option("--threads", flags.options.n_threads, "0: one per hardware thread")->capture_default_str();
  app.add_option("--shape", flags.shape, "Heads, key-value heads, head_dim")
      ->delimiter(',')
      ->expected(3)
      ->capture_default_str();
  app.add_option("--layers", flags.layers)->capture_default_str();
  app.add_option("--prompt", flags.prompts)->delimiter(',')->capture_default_str();
  app.add_option("--context", flags.contexts)->delimiter(',')->capture_default_str();
  app.add_option("-n", flags.repetitions, "Steps that count")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--limit", flags.limit, "Read bandwidth of this machine in GB/s");
  app.add_option("--peer", flags.peer, "Receipt of flash_attention.py");
  app.add_option("-o,--output", flags.output, "Receipt (JSON)");
  CLI11_PARSE(app, argc, argv);
  const nibble::Status status = nibble::run(flags);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.error().to_string());
  return status.ok() ? 0 : 1;
}
