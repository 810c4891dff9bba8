#include "measure/op_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/machine.h"
#include "base/sha256.h"
#include "kernels/limits.h"
#include "measure/ggml_peer.h"
#include "measure/op_budget.h"
#include "measure/op_layer.h"
#include "measure/op_limits.h"
#include "measure/op_row.h"
#include "measure/statistics.h"

namespace nibble::measure {
namespace {

constexpr std::size_t kMinSamples = 5;
constexpr std::chrono::milliseconds kPeerSettles{20};  // threads of OpenMP spin for a while after their work
constexpr std::size_t kMaxCopies = 4096;               // of a matrix so small that it is found in a cache all the same
constexpr double kQuickSampleSeconds = 0.3;            // of a row, where the budget has as much
constexpr double kShareForLimits = 2;                  // seconds a row, with which limits are measured around each
constexpr double kRest = 0.2;                          // of the budget: for what begins just before it is spent
constexpr int kReferenceProbe = 2 * kGemvTokens;       // tokens that tell how fast the reference is

constexpr const char* kShapeRule = "NxK, such as 14336x4096, both from 1 and below 2^24";

bool is_shape(const OpShape& shape) {
  constexpr int kMost = 1 << 24;
  return shape.n >= 1 && shape.n < kMost && shape.k >= 1 && shape.k < kMost;
}

std::string digest_of(std::span<const float> values) {
  return sha256_hex(std::as_bytes(values));
}

double seconds_since(OpBudget::Clock::time_point begin) {
  return std::chrono::duration<double>(OpBudget::Clock::now() - begin).count();
}

double seconds_of_pass(OpLayer& layer, std::size_t n_copies) {
  const auto begin = OpBudget::Clock::now();
  layer.pass(n_copies);
  return seconds_since(begin) / static_cast<double>(n_copies);
}

// Into row.seconds, and row.peer_seconds where a peer runs in turn, until `wanted_s` (twice that of two) have passed
// and kMinSamples are there, or fewer where `end_s` comes first, but one at least. The first round touches the weights
// and wakes threads.
Status take_samples(OpRow& row, OpLayer& layer, std::size_t n_copies, PythonPeer* peer, double wanted_s, double end_s) {
  const auto start = OpBudget::Clock::now();
  const auto wants_more = [&] {
    return row.seconds.size() < kMinSamples || seconds_since(start) < (peer != nullptr ? 2 : 1) * wanted_s;
  };
  for (std::size_t round = 0; row.seconds.empty() || (wants_more() && seconds_since(start) < end_s); ++round) {
    double ours = 0;
    if (round % 2 == 0) ours = seconds_of_pass(layer, n_copies);
    if (peer != nullptr) {
      NIBBLE_ASSIGN(const Sample sample, peer->sample());
      std::this_thread::sleep_for(kPeerSettles);
      if (round > 0) row.peer_seconds.push_back(sample.seconds);
    }
    if (round % 2 != 0) ours = seconds_of_pass(layer, n_copies);
    if (round > 0) row.seconds.push_back(ours);
  }
  return ok_status();
}

// The weights of a format and shape, what they meet, and what must come out.
struct Matrix {
  std::string format;
  OpShape shape;
  OpWeights weights;
  std::vector<float> x;         // [tokens, k]
  std::vector<float> expected;  // [tokens, n]
  int tokens = 0;               // of `expected`: all, or as many as a quick run had time for
  std::size_t n_copies = 1;     // of a gemv
};

class OpBench {
 public:
  OpBench(const OpOptions& options, const OpProgress& progress) : options_(options), progress_(progress) {}

  Result<Json> run() {
    NIBBLE_ASSIGN(machines_, choose_machines());
    const std::size_t cells_of_matrix = machines_.size() * options_.tokens.size();
    budget_ = OpBudget(options_.quick ? options_.quick_seconds * (1 - kRest) : 0,
                       options_.shapes.size() * options_.formats.size() * cells_of_matrix);
    NIBBLE_TRY(measure_peaks());
    for (const OpShape& shape : options_.shapes) {  // every format before another shape, should the time not suffice
      for (const std::string& format : options_.formats) NIBBLE_TRY(run_matrix(format, shape));
    }
    NIBBLE_TRY(options_.quick ? limits_.again([this] { return budget_.left() > limit_seconds_; }) : measure_peaks());
    return to_json();
  }

 private:
  Json to_json() const {
    Json json = {{"what", "bench op"}};
    json.update(program_facts());
    json["machine"] = machine_facts();
    json["machine"].update(limits_.to_json());
    if (options_.quick) json["budget"] = {{"seconds", options_.quick_seconds}, {"hit", is_hit_}};
    json["rows"] = Json::array();
    for (const OpRow& row : rows_) json["rows"].push_back(row.to_json(limits_));
    if (!left_out_.empty()) json["left_out"] = left_out_;
    return json;
  }

  Status measure_peaks() {
    for (const OpMachine& machine : machines_) {
      if (machine.is_cpu()) NIBBLE_TRY(limits_.integer(machine));
    }
    return ok_status();
  }

  Status measure_limit(const OpRow& row) {
    if (!row.machine.is_cpu()) return ok_status();
    const auto begin = OpBudget::Clock::now();
    const bool once = options_.quick && budget_.share() < kShareForLimits;
    if (!row.is_gemv()) {
      NIBBLE_TRY(limits_.integer(row.machine, once));
    } else {
      limits_.read(row.machine.threads, row.limit_bytes, once);
    }
    limit_seconds_ = std::max(limit_seconds_, seconds_since(begin));
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
    if (isas.empty()) {
      NIBBLE_ASSIGN(const std::string_view isa, kernels::cpu_auto_isa());
      isas = {std::string(isa)};
    }
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
      for (const int n : threads) {
        machines.push_back({.isa = isa, .threads = n, .pins_threads = options_.pins_threads});
      }
    }
    return machines;
  }

  // A matrix of a quick run is not begun where the dearest one so far would not fit, nor is a machine of it, nor a row.
  bool has_time_for(double seconds) const { return rows_.empty() || budget_.left() > seconds; }

  void leave_out(const OpRow& row) {
    is_hit_ = true;
    left_out_.push_back(row.name());
    done();
  }

  void leave_out(const std::string& format, const OpShape& shape, const OpMachine& machine) {
    for (const int m : options_.tokens) leave_out({.format = format, .shape = shape, .m = m, .machine = machine});
  }

  void done() {
    budget_.done();
    if (progress_) progress_(budget_.n_done(), budget_.n_cells());
  }

  Status run_matrix(const std::string& format, const OpShape& shape) {
    if (!is_shape(shape)) {
      return Error{.message = "not the shape of a layer",
                   .found = fmt::format("{}x{}", shape.n, shape.k),
                   .expected = kShapeRule};
    }
    std::optional<Matrix> matrix;
    if (has_time_for(matrix_seconds_)) {
      const auto begin = OpBudget::Clock::now();
      NIBBLE_ASSIGN(matrix, make_matrix(format, shape));
      matrix_seconds_ = std::max(matrix_seconds_, seconds_since(begin));
    }
    for (const OpMachine& machine : machines_) {
      if (matrix && has_time_for(layer_seconds_ + std::min(row_seconds_[0], row_seconds_[1]))) {
        NIBBLE_TRY(run_machine(*matrix, machine));
      } else {
        leave_out(format, shape, machine);
      }
    }
    return ok_status();
  }

  Result<Matrix> make_matrix(const std::string& format, const OpShape& shape) {
    const double time = budget_.share(machines_.size() * options_.tokens.size());
    NIBBLE_ASSIGN(OpWeights weights, OpWeights::create(format, shape.n, shape.k));
    const int most = *std::ranges::max_element(options_.tokens);
    Matrix matrix{.format = format,
                  .shape = shape,
                  .weights = std::move(weights),
                  .x = op_activations(most, shape.k),
                  .expected = {},
                  .tokens = most,
                  .n_copies = 1};
    if (options_.from_cache && matrix.weights.bytes() > last_level_cache_bytes() / 2) {
      return Error{.message = "the matrix does not fit into the cache",
                   .found = fmt::format("{} bytes", matrix.weights.bytes()),
                   .expected = fmt::format("at most {}, half of the last level", last_level_cache_bytes() / 2)};
    }
    const bool has_gemv = *std::ranges::min_element(options_.tokens) <= kGemvTokens;
    if (has_gemv && !options_.from_cache) {
      matrix.n_copies = std::min(kMaxCopies, ram_bytes() / matrix.weights.bytes() + 1);
    }
    NIBBLE_TRY(add_expected(matrix, time / 4));
    return matrix;
  }

  // For as many tokens as the reference has time for, where time matters: a few at a time, as a busy machine may take
  // much longer for the next than it took for the last.
  Status add_expected(Matrix& matrix, double seconds) const {
    const OpMachine reference{.backend = "reference", .threads = hardware_threads()};
    NIBBLE_ASSIGN(OpLayer layer, OpLayer::create(reference, matrix.weights, 1, matrix.shape));
    const auto begin = OpBudget::Clock::now();
    const int step = options_.quick ? kReferenceProbe : matrix.tokens;
    const int most = std::exchange(matrix.tokens, 0);
    while (matrix.tokens < most && (matrix.tokens == 0 || seconds_since(begin) < seconds)) {
      const int n = std::min(step, most - matrix.tokens);
      layer.meet(std::span(matrix.x).subspan(static_cast<std::size_t>(matrix.tokens) *
                                             static_cast<std::size_t>(matrix.shape.k)),
                 n);
      const std::vector<float> outputs = layer.outputs(0);
      matrix.expected.insert(matrix.expected.end(), outputs.begin(), outputs.end());
      matrix.tokens += n;
    }
    return ok_status();
  }

  Status run_machine(const Matrix& matrix, const OpMachine& machine) {
    const auto begin = OpBudget::Clock::now();
    NIBBLE_ASSIGN(OpLayer layer, OpLayer::create(machine, matrix.weights, matrix.n_copies, matrix.shape));
    layer_seconds_ = std::max(layer_seconds_, seconds_since(begin));
    for (const int m : options_.tokens) {
      OpRow row{.format = matrix.format, .shape = matrix.shape, .m = m, .machine = machine};
      if (!has_time_for(row_seconds_[row.is_gemv() ? 0 : 1])) {
        leave_out(row);
        continue;
      }
      NIBBLE_TRY(run_row(matrix, layer, std::move(row)));
      done();
    }
    return ok_status();
  }

  Status run_row(const Matrix& matrix, OpLayer& layer, OpRow row) {
    const auto begin = OpBudget::Clock::now();
    double least = 0;  // of a gemm: the passes that it cannot do without, with the fewest tokens
    if (options_.quick && !row.is_gemv()) {
      row.m_asked = row.m;
      const int few = std::min({row.m, matrix.tokens, kReferenceProbe});
      layer.meet(matrix.x, few);
      const double pass = seconds_of_pass(layer, 1);
      row.m = tokens_that_fit(std::min(row.m, matrix.tokens), few, pass);
      least = 4 * pass;
    }
    const std::size_t n_copies = row.is_gemv() ? layer.n_copies() : 1;
    row.bytes = matrix.weights.bytes();
    const std::size_t bytes = n_copies * row.bytes;
    row.data = !row.is_gemv() ? "any" : bytes < ram_bytes() ? "cache" : "ram";
    row.limit_bytes = row.data == "cache" ? bytes : kernels::kReadBytes;
    if (row.is_gemv()) NIBBLE_TRY(measure_limit(row));
    layer.meet(matrix.x, row.m);
    const double share = budget_.share();
    const double wanted =
        options_.quick ? std::min({kQuickSampleSeconds, options_.row_seconds, share / 3}) : options_.row_seconds;
    std::optional<PythonPeer> peer;
    if (!options_.ggml_python.empty()) {
      NIBBLE_ASSIGN(PythonPeer ggml,
                    start_ggml(options_.ggml_python, {row.format, row.shape, row.m, row.machine.threads, bytes}));
      peer.emplace(std::move(ggml));
      row.peer = peer->description();
    }
    const auto samples_begin = OpBudget::Clock::now();
    NIBBLE_TRY(take_samples(row, layer, n_copies, peer ? &*peer : nullptr, wanted, options_.quick ? share : 1e9));
    const double samples_seconds = seconds_since(samples_begin);
    is_hit_ |= row.seconds.size() < kMinSamples || row.m_asked > row.m;
    NIBBLE_TRY(measure_limit(row));
    NIBBLE_TRY(check_outputs(matrix, layer, row, n_copies));
    if (row.is_gemv()) {  // all but the samples that it could do without
      const double of_a_round = samples_seconds / static_cast<double>(row.seconds.size() + 1);
      least = seconds_since(begin) - samples_seconds + 2 * of_a_round;
    }
    double& dearest = row_seconds_[row.is_gemv() ? 0 : 1];
    dearest = std::max(dearest, least);
    rows_.push_back(std::move(row));
    return ok_status();
  }

  static Status check_outputs(const Matrix& matrix, OpLayer& layer, OpRow& row, std::size_t n_copies) {
    const auto wanted =
        std::span(matrix.expected).first(static_cast<std::size_t>(row.m) * static_cast<std::size_t>(row.shape.n));
    row.digest = digest_of(wanted);
    for (std::size_t copy = 0; copy < n_copies; ++copy) {
      const std::vector<float> found = layer.outputs(copy);
      if (std::memcmp(found.data(), wanted.data(), wanted.size_bytes()) == 0) continue;
      return Error{.message = "the kernel's outputs are not those of the contract",
                   .tensor = row.name(),
                   .found = digest_of(found),
                   .expected = row.digest + " (backend reference)",
                   .hint = "its speed means nothing; this is a fault of nibble, please report it"};
    }
    return ok_status();
  }

  // Of a gemm: eight passes shall take the row's share of what is left, by the clock of one with `few` tokens. The peak
  // is no guide: on a busy machine a short loop may find a core for itself, and a gemm does not.
  int tokens_that_fit(int most, int few, double seconds_of_few) const {
    int m = most;
    while (m > few && 8 * seconds_of_few * m / few > budget_.share()) m = std::max(few, m / 2);
    return m;
  }

  // Several times the last level of cache, and no machine's memory.
  std::size_t ram_bytes() const {
    const std::uint64_t least = options_.quick ? 0 : kernels::kReadBytes;
    const std::uint64_t several = std::max<std::uint64_t>(least, 4 * last_level_cache_bytes());
    return static_cast<std::size_t>(std::min(several, physical_memory_bytes() / 16));
  }

  const OpOptions& options_;
  const OpProgress& progress_;
  std::vector<OpMachine> machines_;
  OpBudget budget_{0, 0};
  OpLimits limits_;
  std::vector<OpRow> rows_;
  Json left_out_ = Json::array();
  bool is_hit_ = false;
  double matrix_seconds_ = 0;   // the dearest so far: to make a matrix and its expected outputs,
  double layer_seconds_ = 0;    // and a machine's copies of it,
  double limit_seconds_ = 0;    // a limit,
  double row_seconds_[2] = {};  // a row with the fewest samples and tokens: gemv, gemm
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
    return Error{.message = "a linear layer has at least one token", .expected = "1 or more"};
  }
  return OpBench(options, progress).run();
}

}  // namespace nibble::measure
