#include "measure/op_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/machine.h"
#include "base/sha256.h"
#include "kernels/limits.h"
#include "kernels/registry.h"
#include "measure/op_data.h"
#include "measure/statistics.h"

namespace nibble::measure {
namespace {

constexpr int kGemvTokens = 16;  // more are a gemm
constexpr std::size_t kMinSamples = 5;

struct Machine {
  std::string isa;
  int threads = 0;
};

// One linear layer on one backend: `n_copies` of its matrix in turn, so that none is found in a cache.
class Layer {
 public:
  static Result<Layer> create(const Machine& machine, const std::vector<OpWeights>& copies, std::span<const float> x,
                              int m, const OpShape& shape) {
    Layer layer;
    NIBBLE_ASSIGN(layer.backend_, kernels::make_backend("cpu", {.isa = machine.isa, .n_threads = machine.threads}));
    NIBBLE_TRY(layer.fill(copies, x, m, shape));
    return layer;
  }
  static Result<std::vector<float>> reference(const OpWeights& weights, std::span<const float> x, int m,
                                              const OpShape& shape) {
    Layer layer;
    NIBBLE_ASSIGN(layer.backend_, kernels::make_backend("reference", {.n_threads = hardware_threads()}));
    std::vector<OpWeights> one;
    one.push_back(weights.copy());
    NIBBLE_TRY(layer.fill(one, x, m, shape));
    return layer.outputs(0);
  }

  // All copies once.
  void pass() {
    backend_->begin_step(m_);
    for (const auto& linear : linears_) backend_->linear(*input_, *linear, nullptr, out_->data());
    backend_->end_step();
  }
  std::size_t n_copies() const { return linears_.size(); }
  std::vector<float> outputs(std::size_t copy) {
    backend_->begin_step(m_);
    backend_->linear(*input_, *linears_[copy], nullptr, out_->data());
    backend_->end_step();
    std::vector<float> host(out_->size());
    backend_->read(out_->data(), host);
    return host;
  }

 private:
  Status fill(const std::vector<OpWeights>& copies, std::span<const float> x, int m, const OpShape& shape) {
    m_ = m;
    for (const OpWeights& weights : copies) {
      NIBBLE_ASSIGN(linears_.emplace_back(), backend_->make_linear(weights.source()));
    }
    x_ = backend_->make_vector(x.first(static_cast<std::size_t>(m) * static_cast<std::size_t>(shape.k)));
    out_ = backend_->make_buffer(static_cast<std::size_t>(m) * static_cast<std::size_t>(shape.n));
    input_ = backend_->make_linear_input(m, shape.k);
    backend_->begin_step(m);
    backend_->prepare_input(x_->data(), m, *input_);
    backend_->end_step();
    return ok_status();
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::vector<std::unique_ptr<kernels::Linear>> linears_;
  std::unique_ptr<kernels::Buffer> x_, out_;
  std::unique_ptr<kernels::LinearInput> input_;
  int m_ = 0;
};

std::string digest_of(std::span<const float> values) {
  return sha256_hex(std::as_bytes(values));
}

// The best that was seen of each limit in this run: noise on a shared machine only takes away.
class Limits {
 public:
  double read(int threads, std::size_t bytes) {
    double& best = read_[{threads, bytes}];
    return best = std::max(best, kernels::read_bandwidth(threads, bytes));
  }
  Result<double> integer(const Machine& machine) {
    NIBBLE_ASSIGN(const double found, kernels::integer_peak(machine.isa, machine.threads));
    double& best = integer_[{machine.isa, machine.threads}];
    return best = std::max(best, found);
  }
  double best_read(int threads, std::size_t bytes) const { return read_.at({threads, bytes}); }
  double best_integer(const Machine& machine) const { return integer_.at({machine.isa, machine.threads}); }

  Json to_json() const {
    Json read = Json::object(), integer = Json::object();
    for (const auto& [key, rate] : read_) {
      if (key.second == kernels::kReadBytes) read[std::to_string(key.first)] = rate;
    }
    for (const auto& [key, rate] : integer_) integer[key.first][std::to_string(key.second)] = rate;
    return {{"read_gb_per_s", read}, {"int16_gop_per_s", integer}};
  }

 private:
  std::map<std::pair<int, std::size_t>, double> read_;
  std::map<std::pair<std::string, int>, double> integer_;
};

struct Row {
  std::string format;
  OpShape shape;
  int m = 0;
  Machine machine;
  std::string data = {};
  std::size_t bytes = 0;
  std::size_t limit_bytes = 0;  // of the buffer whose reading is the limit
  std::vector<double> seconds = {};
  std::string digest = {};

  bool is_gemv() const { return m <= kGemvTokens; }
  double ops() const { return 2.0 * m * shape.n * shape.k; }
  std::string name() const {
    return fmt::format("{} {} m={} n={} k={}, {}, {} thread{}", is_gemv() ? "gemv" : "gemm", format, m, shape.n,
                       shape.k, machine.isa, machine.threads, machine.threads == 1 ? "" : "s");
  }
  Json to_json(const Limits& limits) const {
    const double s = median(seconds);
    const double achieved = (is_gemv() ? static_cast<double>(bytes) : ops()) / s * 1e-9;
    const double limit = is_gemv() ? limits.best_read(machine.threads, limit_bytes) : limits.best_integer(machine);
    return {{"op", is_gemv() ? "gemv" : "gemm"},
            {"format", format},
            {"m", m},
            {"n", shape.n},
            {"k", shape.k},
            {"isa", machine.isa},
            {"threads", machine.threads},
            {"data", data},
            {"samples_s", seconds},
            {"median_s", s},
            {"cv", population_cv(seconds)},
            {"bytes", bytes},
            {"ops", ops()},
            {"limit_kind", is_gemv() ? "read_gb_per_s" : "int16_gop_per_s"},
            {"achieved", achieved},
            {"limit", limit},
            {"share", achieved / limit},
            {"digest", digest}};
  }
};

std::vector<double> sample(Layer& layer, double budget_s) {
  std::vector<double> seconds;
  double total = 0;
  for (std::size_t i = 0; i <= kMinSamples || total < budget_s; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    layer.pass();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if (i == 0) continue;  // touches the weights, wakes the threads
    seconds.push_back(elapsed.count() / static_cast<double>(layer.n_copies()));
    total += elapsed.count();
  }
  return seconds;
}

class OpBench {
 public:
  OpBench(const OpOptions& options, const OpProgress& progress) : options_(options), progress_(progress) {}

  Result<Json> run() {
    NIBBLE_ASSIGN(const std::vector<Machine> machines, choose_machines());
    for (const Machine& machine : machines) NIBBLE_TRY(limits_.integer(machine));
    for (const std::string& format : options_.formats) {
      for (const OpShape& shape : options_.shapes) NIBBLE_TRY(run_matrix(format, shape, machines));
    }
    for (const Machine& machine : machines) NIBBLE_TRY(limits_.integer(machine));
    Json json = {{"what", "bench op"}};
    json.update(program_facts());
    json["machine"] = machine_facts();
    json["machine"].update(limits_.to_json());
    json["rows"] = Json::array();
    for (const Row& row : rows_) json["rows"].push_back(row.to_json(limits_));
    return json;
  }

 private:
  Result<std::vector<Machine>> choose_machines() const {
    std::vector<std::string> isas = options_.isas;
    const auto known = kernels::cpu_isa_names();
    if (isas.empty()) isas = {std::string(known.front())};
    if (isas == std::vector<std::string>{"all"}) isas.assign(known.begin(), known.end());
    std::vector<int> threads = options_.threads;
    if (threads.empty())
      threads = hardware_threads() > 1 ? std::vector<int>{1, hardware_threads()} : std::vector<int>{1};
    std::vector<Machine> machines;
    machines.reserve(isas.size() * threads.size());
    for (const std::string& isa : isas) {
      if (std::ranges::find(known, isa) == known.end()) {
        return Error{.message = "this machine does not run instruction set '" + isa + "'",
                     .found = isa,
                     .expected = fmt::format("all, or some of: {}", fmt::join(known, ", "))};
      }
      for (const int n : threads) machines.push_back({isa, n});
    }
    return machines;
  }

  Status run_matrix(const std::string& format, const OpShape& shape, const std::vector<Machine>& machines) {
    if (shape.n < 1 || shape.k < 32 || shape.k % 32 != 0) {
      return Error{.message = "not the shape of a layer",
                   .found = fmt::format("{}x{}", shape.n, shape.k),
                   .expected = "NxK: N rows, K columns, K a multiple of 32"};
    }
    NIBBLE_ASSIGN(OpWeights weights, OpWeights::create(format, shape.n, shape.k));
    const int most = *std::ranges::max_element(options_.tokens);
    const std::vector<float> x = op_activations(most, shape.k);
    NIBBLE_ASSIGN(const std::vector<float> expected, Layer::reference(weights, x, most, shape));
    std::vector<OpWeights> copies;
    copies.push_back(std::move(weights));
    const std::size_t wanted = options_.from_cache ? 1 : ram_bytes();
    if (options_.from_cache && copies[0].bytes() > last_level_cache_bytes() / 2) {
      return Error{.message = "the matrix does not fit into the cache",
                   .found = fmt::format("{} bytes", copies[0].bytes()),
                   .expected = fmt::format("at most {}, half of the last level", last_level_cache_bytes() / 2)};
    }
    while (copies.size() * copies[0].bytes() < wanted) copies.push_back(copies[0].copy());
    std::vector<OpWeights> one;
    one.push_back(copies[0].copy());
    for (const Machine& machine : machines) {
      for (const int m : options_.tokens) {
        Row row{.format = format, .shape = shape, .m = m, .machine = machine};
        NIBBLE_TRY(run_row(row, row.is_gemv() ? copies : one, x, expected));
      }
    }
    return ok_status();
  }

  Status run_row(Row row, const std::vector<OpWeights>& copies, std::span<const float> x,
                 std::span<const float> expected) {
    if (options_.quick) row.m = tokens_that_fit(row);
    row.bytes = copies[0].bytes();
    row.data = !row.is_gemv() ? "any" : options_.from_cache ? "cache" : "ram";
    row.limit_bytes = options_.from_cache ? row.bytes : kernels::kReadBytes;
    if (row.is_gemv()) limits_.read(row.machine.threads, row.limit_bytes);
    NIBBLE_ASSIGN(Layer layer, Layer::create(row.machine, copies, x, row.m, row.shape));
    row.seconds = sample(layer, options_.quick ? std::min(0.3, options_.row_seconds) : options_.row_seconds);
    if (row.is_gemv()) limits_.read(row.machine.threads, row.limit_bytes);
    const auto wanted = expected.first(static_cast<std::size_t>(row.m) * static_cast<std::size_t>(row.shape.n));
    for (std::size_t copy = 0; copy < copies.size(); ++copy) {
      const std::vector<float> found = layer.outputs(copy);
      if (std::memcmp(found.data(), wanted.data(), wanted.size_bytes()) != 0) {
        return Error{.message = "the kernel's outputs are not those of the contract",
                     .tensor = row.name(),
                     .found = digest_of(found),
                     .expected = digest_of(wanted) + " (backend reference)",
                     .hint = "its speed means nothing; this is a fault of nibble, please report it"};
      }
    }
    row.digest = digest_of(wanted);
    rows_.push_back(std::move(row));
    if (progress_) progress_(rows_.back().to_json(limits_));
    return ok_status();
  }

  // Six runs at a fifth of the peak shall take some seconds, and less where this run is late already.
  int tokens_that_fit(const Row& row) const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
    const double peak_seconds = elapsed.count() < 20 ? 0.25 : 0.03;
    int m = row.m;
    while (m > 2 * kGemvTokens &&
           2e-9 * m * row.shape.n * row.shape.k > peak_seconds * limits_.best_integer(row.machine))
      m /= 2;
    return m;
  }

  // Several times the last level of cache, and no machine's memory.
  static std::size_t ram_bytes() {
    const std::uint64_t several = std::max<std::uint64_t>(kernels::kReadBytes, 4 * last_level_cache_bytes());
    return static_cast<std::size_t>(std::min(several, physical_memory_bytes() / 16));
  }

  const OpOptions& options_;
  const OpProgress& progress_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Limits limits_;
  std::vector<Row> rows_;
};

}  // namespace

Result<OpShape> parse_shape(const std::string& text) {
  OpShape shape;
  const char* const end = text.data() + text.size();
  const auto n = std::from_chars(text.data(), end, shape.n);
  const bool has_x = n.ec == std::errc() && n.ptr != end && *n.ptr == 'x';
  const auto k = std::from_chars(has_x ? n.ptr + 1 : end, end, shape.k);
  if (!has_x || k.ec != std::errc() || k.ptr != end) {
    return Error{.message = "not a shape", .found = text, .expected = "NxK, for example 14336x4096"};
  }
  return shape;
}

Result<Json> bench_ops(const OpOptions& options, const OpProgress& progress) {
  if (options.tokens.empty() || *std::ranges::min_element(options.tokens) < 1) {
    return Error{.message = "a linear layer has at least one token", .expected = "-m 1 or more"};
  }
  return OpBench(options, progress).run();
}

}  // namespace nibble::measure
