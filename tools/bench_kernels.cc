// Speed of the CPU kernels beside the limits of the machine in the same run.
//
// usage: bench_kernels [N_IN N_OUT N_TOKENS [THREADS]]     (default: 4096 14336 64, all hardware threads)
//
// Prints read bandwidth, then for each usable instruction set: GB/s of weights for one token, GOP/s for N_TOKENS, NVFP4
// and F16. A figure is the median of at least five runs, with the fastest in brackets: other work on the machine slows
// runs, nothing speeds them up.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/machine.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/detect.h"

namespace {

using namespace nibble;
using namespace nibble::kernels;

struct Seconds {
  double median, best;
};

Seconds measure(const std::function<void()>& run) {
  constexpr double kBudget = 1.0;
  constexpr std::size_t kMinRuns = 5;
  run();  // touches the weights
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < kMinRuns || total < kBudget) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    total += seconds.back();
  }
  std::ranges::sort(seconds);
  return {seconds[seconds.size() / 2], seconds.front()};
}

std::string rate(double amount, const Seconds& seconds) {
  return fmt::format("{:6.1f} ({:.1f})", amount / seconds.median * 1e-9, amount / seconds.best * 1e-9);
}

// So many layers are read in turn that none stays in a cache.
constexpr double kWorkingSet = 256e6;

struct Weights {
  std::vector<std::uint8_t> codes, scales;
  std::vector<std::uint16_t> halves;
  Nvfp4View nvfp4;
  std::vector<TensorView> f16;  // copies
};

int copies_of(double bytes) {
  return std::max(1, static_cast<int>(std::ceil(kWorkingSet / bytes)));
}

Weights random_weights(std::uint64_t n_in, std::uint64_t n_out) {
  std::mt19937_64 random(1);
  const std::uint64_t n = n_in * n_out;
  const int copies = copies_of(2.0 * static_cast<double>(n));
  Weights w{std::vector<std::uint8_t>(n / 2),
            std::vector<std::uint8_t>(n / kNvfp4Group),
            std::vector<std::uint16_t>(n * copies),
            {},
            {}};
  for (std::uint8_t& code : w.codes) code = static_cast<std::uint8_t>(random());
  for (std::uint8_t& scale : w.scales) scale = static_cast<std::uint8_t>(72 + random() % 24);
  for (std::uint16_t& half : w.halves) half = static_cast<std::uint16_t>(0x2000 + (random() & 0x97FF));
  w.nvfp4 = {"nvfp4", n_out, n_in, w.codes, w.scales, 0.01F, {}};
  for (int i = 0; i < copies; ++i) {
    const std::span<const std::uint16_t> copy = std::span(std::as_const(w.halves)).subspan(i * n, n);
    w.f16.push_back({"f16", DType::kF16, {n_in, n_out}, std::as_bytes(copy)});
  }
  return w;
}

Status bench(std::string_view isa, const Weights& weights, int n_tokens, int n_threads) {
  NIBBLE_ASSIGN(const auto backend, make_cpu_backend({.isa = std::string(isa), .n_threads = n_threads}));
  const int n_in = static_cast<int>(weights.nvfp4.cols), n_out = static_cast<int>(weights.nvfp4.rows);
  const auto input = backend->make_linear_input(n_tokens, n_in);
  const auto out = backend->make_buffer(static_cast<std::size_t>(n_tokens) * n_out);
  std::vector<float> x(static_cast<std::size_t>(n_tokens) * n_in);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 37 % 2001) - 1000) * 1e-3F;
  backend->begin_step(n_tokens);
  for (const bool is_nvfp4 : {true, false}) {
    const double elements = static_cast<double>(n_in) * n_out;
    const int copies = is_nvfp4 ? copies_of(elements * 9 / 16) : static_cast<int>(weights.f16.size());
    std::vector<std::unique_ptr<Linear>> linears;
    for (int i = 0; i < copies; ++i) {
      NIBBLE_ASSIGN(auto linear, is_nvfp4 ? backend->make_linear(weights.nvfp4) : backend->make_linear(weights.f16[i]));
      linears.push_back(std::move(linear));
    }
    std::size_t next = 0;
    const auto run = [&] {
      backend->linear(*input, *linears[next], nullptr, out->data());
      next = (next + 1) % linears.size();
    };
    backend->prepare_input(x.data(), 1, *input);
    const std::string gemv = rate(elements * (is_nvfp4 ? 9.0 / 16 : 2), measure(run));
    backend->prepare_input(x.data(), n_tokens, *input);
    const std::string gemm = rate(elements * 2 * n_tokens, measure(run));
    fmt::print("{:28} {:6} 1 token: {} GB/s    {} tokens: {} GOP/s\n", backend->description(),
               is_nvfp4 ? "nvfp4" : "f16", gemv, n_tokens, gemm);
  }
  return ok_status();
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
  const int n_in = argument(1, 4096), n_out = argument(2, 14336), n_tokens = argument(3, 64);
  const int n_threads = argument(4, nibble::hardware_threads());
  if (n_in <= 0 || n_in % 16 != 0 || n_out <= 0 || n_tokens <= 0 || n_threads <= 0) {
    fmt::print(stderr, "usage: bench_kernels [N_IN N_OUT N_TOKENS [THREADS]]; N_IN is a multiple of 16\n");
    return 2;
  }
  const Weights weights = random_weights(n_in, n_out);
  fmt::print("{} x {}, median (best) of repeated runs\n", n_in, n_out);
  for (int threads : {1, n_threads}) {
    fmt::print("read bandwidth, {} threads: {:.1f} GB/s\n", threads, cpu::measure_read_bandwidth(threads));
    if (n_threads == 1) break;
  }
  for (const std::string_view isa : cpu::isa_names()) {
    for (int threads : {1, n_threads}) {
      const Status status = bench(isa, weights, n_tokens, threads);
      if (!status.ok()) fmt::print(stderr, "{}\n", status.error().to_string());
      if (!status.ok() || n_threads == 1) break;
    }
  }
  return 0;
}
