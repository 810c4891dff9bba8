#include "measure/op_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/machine.h"
#include "base/sha256.h"
#include "kernels/limits.h"
#include "measure/ggml_peer.h"
#include "measure/op_layer.h"
#include "measure/statistics.h"

namespace nibble::measure {
namespace {

constexpr int kGemvTokens = 16;  // more are a gemm
constexpr std::size_t kMinSamples = 5;
constexpr double kQuickSeconds = 24;  // a quick run begins no matrix after them

constexpr const char* kShapeRule = "NxK, such as 14336x4096: N from 1, K a multiple of 32, both below 2^24";

bool is_shape(const OpShape& shape) {
  constexpr int kMost = 1 << 24;
  return shape.n >= 1 && shape.n < kMost && shape.k >= 32 && shape.k < kMost && shape.k % 32 == 0;
}

std::string digest_of(std::span<const float> values) {
  return sha256_hex(std::as_bytes(values));
}

// The best that was seen of each limit in this run: noise on a shared machine only takes away.
class Limits {
 public:
  void read(int threads, std::size_t bytes) {
    double& best = read_[{threads, bytes}];
    best = std::max(best, kernels::read_bandwidth(threads, bytes));
  }
  Status integer(const OpMachine& machine) {
    NIBBLE_ASSIGN(const double found, kernels::integer_peak(machine.isa, machine.threads));
    double& best = integer_[{machine.isa, machine.threads}];
    best = std::max(best, found);
    return ok_status();
  }
  double best_read(int threads, std::size_t bytes) const { return read_.at({threads, bytes}); }
  double best_integer(const OpMachine& machine) const { return integer_.at({machine.isa, machine.threads}); }

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
  OpMachine machine;
  std::string data = {};
  std::size_t bytes = 0;
  std::size_t limit_bytes = 0;  // of the buffer whose reading is the limit
  std::vector<double> seconds = {};
  std::string peer = {};  // what runs beside it, in its words
  std::vector<double> peer_seconds = {};
  std::string digest = {};

  bool is_gemv() const { return m <= kGemvTokens; }
  double ops() const { return 2.0 * m * shape.n * shape.k; }
  std::string name() const {
    return fmt::format("{} {} m={} n={} k={}, {}, {} thread{}", is_gemv() ? "gemv" : "gemm", format, m, shape.n,
                       shape.k, machine.is_cpu() ? machine.isa : machine.backend, machine.threads,
                       machine.threads == 1 ? "" : "s");
  }
  Json to_json(const Limits& limits) const {
    const double s = median(seconds);
    const double achieved = rate(s);
    const double limit = !machine.is_cpu() ? 0
                         : is_gemv()       ? limits.best_read(machine.threads, limit_bytes)
                                           : limits.best_integer(machine);
    Json json = {{"op", is_gemv() ? "gemv" : "gemm"},
                 {"format", format},
                 {"m", m},
                 {"n", shape.n},
                 {"k", shape.k},
                 {"backend", machine.backend},
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
                 {"limit", limit > 0 ? Json(limit) : Json()},
                 {"share", limit > 0 ? Json(achieved / limit) : Json()},
                 {"digest", digest}};
    if (!peer.empty()) add_peer(json);
    return json;
  }

 private:
  double rate(double s) const { return (is_gemv() ? static_cast<double>(bytes) : ops()) / s * 1e-9; }
  void add_peer(Json& json) const {
    const double s = median(peer_seconds);
    json["peer"] = {{"peer", "ggml"},
                    {"description", peer},
                    {"samples_s", peer_seconds},
                    {"median_s", s},
                    {"cv", population_cv(peer_seconds)},
                    {"achieved", rate(s)}};
    const Ratio ratio = ratio_of_medians(peer_seconds, seconds);
    json["speed_over_peer"] = {{"ratio", ratio.value}, {"low", ratio.low}, {"high", ratio.high}};
  }
};

double seconds_of_pass(OpLayer& layer) {
  const auto begin = std::chrono::steady_clock::now();
  layer.pass();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / static_cast<double>(layer.n_copies());
}

// Into row.seconds, and row.peer_seconds where a peer runs in turn. The first round touches the weights and wakes
// threads.
Status take_samples(Row& row, OpLayer& layer, PythonPeer* peer, double budget_s) {
  double total = 0;
  for (std::size_t round = 0; round <= kMinSamples || total < budget_s; ++round) {
    double ours = 0;
    if (round % 2 == 0) ours = seconds_of_pass(layer);
    if (peer != nullptr) {
      NIBBLE_ASSIGN(const Sample sample, peer->sample());
      if (round > 0) row.peer_seconds.push_back(sample.seconds);
    }
    if (round % 2 != 0) ours = seconds_of_pass(layer);
    if (round == 0) continue;
    row.seconds.push_back(ours);
    total += ours * static_cast<double>(layer.n_copies());
  }
  return ok_status();
}

class OpBench {
 public:
  OpBench(const OpOptions& options, const OpProgress& progress) : options_(options), progress_(progress) {}

  Result<Json> run() {
    NIBBLE_ASSIGN(const std::vector<OpMachine> machines, choose_machines());
    NIBBLE_TRY(measure_peaks(machines));
    Json left_out = Json::array();
    for (const std::string& format : options_.formats) {
      for (const OpShape& shape : options_.shapes) {
        if (options_.quick && !rows_.empty() && elapsed() > kQuickSeconds) {
          left_out.push_back(fmt::format("{} {}x{}", format, shape.n, shape.k));
        } else {
          NIBBLE_TRY(run_matrix(format, shape, machines));
        }
      }
    }
    NIBBLE_TRY(measure_peaks(machines));
    Json json = {{"what", "bench op"}};
    json.update(program_facts());
    json["machine"] = machine_facts();
    json["machine"].update(limits_.to_json());
    json["rows"] = Json::array();
    for (const Row& row : rows_) json["rows"].push_back(row.to_json(limits_));
    if (!left_out.empty()) json["left_out"] = left_out;
    return json;
  }

 private:
  Status measure_peaks(const std::vector<OpMachine>& machines) {
    for (const OpMachine& machine : machines) {
      if (machine.is_cpu()) NIBBLE_TRY(limits_.integer(machine));
    }
    return ok_status();
  }

  Status measure_limit(const Row& row) {
    if (!row.machine.is_cpu()) return ok_status();
    if (!row.is_gemv()) return limits_.integer(row.machine);
    limits_.read(row.machine.threads, row.limit_bytes);
    return ok_status();
  }

  Result<std::vector<OpMachine>> choose_machines() const {
    if (options_.backend != "cpu") {
      if (!options_.isas.empty()) {
        return Error{.message = fmt::format("backend '{}' has no instruction sets to choose", options_.backend),
                     .found = fmt::format("{}", fmt::join(options_.isas, ", ")),
                     .expected = "none named, or backend cpu"};
      }
      std::vector<OpMachine> machines;
      for (const int n : options_.threads) machines.push_back({.backend = options_.backend, .threads = n});
      if (machines.empty()) machines.push_back({.backend = options_.backend, .threads = hardware_threads()});
      return machines;
    }
    std::vector<std::string> isas = options_.isas;
    const auto known = kernels::cpu_isa_names();
    if (isas.empty()) isas = {std::string(known.front())};
    if (isas == std::vector<std::string>{"all"}) isas.assign(known.begin(), known.end());
    std::vector<int> threads = options_.threads;
    if (threads.empty())
      threads = hardware_threads() > 1 ? std::vector<int>{1, hardware_threads()} : std::vector<int>{1};
    std::vector<OpMachine> machines;
    machines.reserve(isas.size() * threads.size());
    for (const std::string& isa : isas) {
      if (std::ranges::find(known, isa) == known.end()) {
        return Error{.message = "this machine does not run instruction set '" + isa + "'",
                     .found = isa,
                     .expected = fmt::format("all, or some of: {}", fmt::join(known, ", "))};
      }
      for (const int n : threads) machines.push_back({.isa = isa, .threads = n});
    }
    return machines;
  }

  Status run_matrix(const std::string& format, const OpShape& shape, const std::vector<OpMachine>& machines) {
    if (!is_shape(shape)) {
      return Error{.message = "not the shape of a layer",
                   .found = fmt::format("{}x{}", shape.n, shape.k),
                   .expected = kShapeRule};
    }
    NIBBLE_ASSIGN(OpWeights weights, OpWeights::create(format, shape.n, shape.k));
    const int most = *std::ranges::max_element(options_.tokens);
    const std::vector<float> x = op_activations(most, shape.k);
    std::vector<OpWeights> copies;
    copies.push_back(std::move(weights));
    NIBBLE_ASSIGN(const std::vector<float> expected, contract_outputs(copies[0], x, most, shape));
    const std::size_t wanted = options_.from_cache ? 1 : ram_bytes();
    if (options_.from_cache && copies[0].bytes() > last_level_cache_bytes() / 2) {
      return Error{.message = "the matrix does not fit into the cache",
                   .found = fmt::format("{} bytes", copies[0].bytes()),
                   .expected = fmt::format("at most {}, half of the last level", last_level_cache_bytes() / 2)};
    }
    while (copies.size() * copies[0].bytes() < wanted) copies.push_back(copies[0].copy());
    std::vector<OpWeights> one;
    one.push_back(copies[0].copy());
    for (const OpMachine& machine : machines) {
      for (const int m : options_.tokens) {
        Row row{.format = format, .shape = shape, .m = m, .machine = machine};
        NIBBLE_TRY(run_row(row, row.is_gemv() ? copies : one, x, expected));
      }
    }
    return ok_status();
  }

  static Result<std::vector<float>> contract_outputs(const OpWeights& weights, std::span<const float> x, int m,
                                                     const OpShape& shape) {
    std::vector<OpWeights> one;
    one.push_back(weights.copy());
    const OpMachine reference{.backend = "reference", .threads = hardware_threads()};
    NIBBLE_ASSIGN(OpLayer layer, OpLayer::create(reference, one, x, m, shape));
    return layer.outputs(0);
  }

  Status run_row(Row row, const std::vector<OpWeights>& copies, std::span<const float> x,
                 std::span<const float> expected) {
    if (options_.quick) row.m = tokens_that_fit(row);
    row.bytes = copies[0].bytes();
    row.data = !row.is_gemv() ? "any" : options_.from_cache ? "cache" : "ram";
    row.limit_bytes = options_.from_cache ? row.bytes : kernels::kReadBytes;
    if (row.is_gemv()) NIBBLE_TRY(measure_limit(row));
    NIBBLE_ASSIGN(OpLayer layer, OpLayer::create(row.machine, copies, x, row.m, row.shape));
    std::optional<PythonPeer> peer;
    if (!options_.ggml_python.empty()) {
      const GgmlTask task{row.format, row.shape, row.m, row.machine.threads, copies.size() * row.bytes};
      NIBBLE_ASSIGN(PythonPeer ggml, start_ggml(options_.ggml_python, task));
      peer.emplace(std::move(ggml));
      row.peer = peer->description();
    }
    const double seconds = options_.quick ? std::min(0.3, options_.row_seconds) : options_.row_seconds;
    NIBBLE_TRY(take_samples(row, layer, peer ? &*peer : nullptr, seconds));
    NIBBLE_TRY(measure_limit(row));
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
    const double peak_seconds = elapsed() < kQuickSeconds / 2 ? 0.25 : 0.03;
    int m = row.m;
    while (row.machine.is_cpu() && m > 2 * kGemvTokens &&
           2e-9 * m * row.shape.n * row.shape.k > peak_seconds * limits_.best_integer(row.machine))
      m /= 2;
    return m;
  }

  // Several times the last level of cache, and no machine's memory.
  static std::size_t ram_bytes() {
    const std::uint64_t several = std::max<std::uint64_t>(kernels::kReadBytes, 4 * last_level_cache_bytes());
    return static_cast<std::size_t>(std::min(several, physical_memory_bytes() / 16));
  }

  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

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
  if (!has_x || k.ec != std::errc() || k.ptr != end || !is_shape(shape)) {
    return Error{.message = "not the shape of a layer", .found = text, .expected = kShapeRule};
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
