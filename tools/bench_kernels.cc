// Speed of the CPU kernels beside the limits of the machine in the same run.
//
// usage: bench_kernels [N_IN N_OUT N_TOKENS [THREADS [TYPE...]]]
//        (default: 4096 14336 64, all hardware threads, NVFP4 F16; also Q4_0 to Q6_K; Q types need N_IN % 256 = 0)
//
// Prints read bandwidth, then for each usable instruction set and type: GB/s of weights for one token, GOP/s for
// N_TOKENS. A figure is the median of at least five runs, with the fastest in brackets: other work on the machine slows
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
#include "kernels/limits.h"

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

int copies_of(double bytes) {
  return std::max(1, static_cast<int>(std::ceil(kWorkingSet / bytes)));
}

// One matrix of a type: enough copies of it that none stays in a cache.
struct Weights {
  std::vector<std::uint8_t> bytes, scales;  // NVFP4, whose kernels copy it: one matrix; rows: every copy
  std::vector<WeightSource> copies;
  double bytes_read = 0;  // by one token
};

Weights random_nvfp4(std::uint64_t n_in, std::uint64_t n_out) {
  std::mt19937_64 random(1);
  Weights w{std::vector<std::uint8_t>(n_in * n_out / 2), std::vector<std::uint8_t>(n_in * n_out / kNvfp4Group), {}, 0};
  for (std::uint8_t& code : w.bytes) code = static_cast<std::uint8_t>(random());
  for (std::uint8_t& scale : w.scales) scale = static_cast<std::uint8_t>(72 + random() % 24);
  w.bytes_read = static_cast<double>(w.bytes.size() + w.scales.size());
  w.copies.assign(copies_of(w.bytes_read), Nvfp4View{"nvfp4", n_out, n_in, w.bytes, w.scales, 0.01F, {}});
  return w;
}

// Random bytes, none of which is the high byte of a float that is not finite: a type has its scales anywhere.
Weights random_rows(DType dtype, std::uint64_t n_in, std::uint64_t n_out) {
  std::mt19937_64 random(1);
  const std::size_t n_bytes = bytes_of(dtype, n_in * n_out);
  const int n_copies = copies_of(static_cast<double>(n_bytes));
  Weights w{std::vector<std::uint8_t>(n_bytes * n_copies), {}, {}, static_cast<double>(n_bytes)};
  for (std::uint8_t& byte : w.bytes) byte = static_cast<std::uint8_t>(random() & 0xB7);
  for (int i = 0; i < n_copies; ++i) {
    const std::span<const std::uint8_t> copy = std::span(std::as_const(w.bytes)).subspan(i * n_bytes, n_bytes);
    w.copies.emplace_back(TensorView{"w", dtype, {n_in, n_out}, std::as_bytes(copy)});
  }
  return w;
}

const DTypeInfo* find_type(const std::string& name) {
  for (std::uint32_t id = 0; id < 64; ++id) {
    if (const DTypeInfo* info = find_dtype(id); info != nullptr && info->name == name) return info;
  }
  return nullptr;
}

Status bench(std::string_view isa, const std::string& type, const Weights& weights, int n_in, int n_out, int n_tokens,
             int n_threads) {
  NIBBLE_ASSIGN(const auto backend, make_cpu_backend({.isa = std::string(isa), .n_threads = n_threads}));
  const auto input = backend->make_linear_input(n_tokens, n_in);
  const auto out = backend->make_buffer(static_cast<std::size_t>(n_tokens) * n_out);
  std::vector<float> x(static_cast<std::size_t>(n_tokens) * n_in);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 37 % 2001) - 1000) * 1e-3F;
  std::vector<std::unique_ptr<Linear>> linears;
  for (const WeightSource& copy : weights.copies) {
    NIBBLE_ASSIGN(auto linear, backend->make_linear(copy));
    linears.push_back(std::move(linear));
  }
  std::size_t next = 0;
  const auto run = [&] {
    backend->linear(*input, *linears[next], nullptr, out->data());
    next = (next + 1) % linears.size();
  };
  backend->begin_step(n_tokens);
  backend->prepare_input(x.data(), 1, *input);
  const std::string gemv = rate(weights.bytes_read, measure(run));
  backend->prepare_input(x.data(), n_tokens, *input);
  const std::string gemm = rate(2.0 * n_in * n_out * n_tokens, measure(run));
  fmt::print("{:28} {:6} 1 token: {} GB/s    {} tokens: {} GOP/s\n", backend->description(), type, gemv, n_tokens,
             gemm);
  return ok_status();
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
  const int n_in = argument(1, 4096), n_out = argument(2, 14336), n_tokens = argument(3, 64);
  const int n_threads = argument(4, nibble::hardware_threads());
  std::vector<std::string> types(argv + std::min(argc, 5), argv + argc);
  if (types.empty()) types = {"NVFP4", "F16"};
  if (n_in <= 0 || n_in % 16 != 0 || n_out <= 0 || n_tokens <= 0 || n_threads <= 0) {
    fmt::print(stderr, "usage: bench_kernels [N_IN N_OUT N_TOKENS [THREADS [TYPE...]]]; N_IN is a multiple of 16\n");
    return 2;
  }
  fmt::print("{} x {}, median (best) of repeated runs\n", n_in, n_out);
  for (int threads : {1, n_threads}) {
    fmt::print("read bandwidth, {} threads: {:.1f} GB/s\n", threads, read_bandwidth(threads));
    if (n_threads == 1) break;
  }
  for (const std::string& type : types) {
    const DTypeInfo* info = find_type(type);
    if (type != "NVFP4" && (info == nullptr || n_in % info->block_size != 0)) {
      fmt::print(stderr, "{} is not a type of rows of {}\n", type, n_in);
      return 2;
    }
    const Weights weights = type == "NVFP4" ? random_nvfp4(n_in, n_out) : random_rows(info->dtype, n_in, n_out);
    for (const std::string_view isa : cpu::isa_names()) {
      for (int threads : {1, n_threads}) {
        const Status status = bench(isa, type, weights, n_in, n_out, n_tokens, threads);
        if (!status.ok()) fmt::print(stderr, "{}\n", status.error().to_string());
        if (!status.ok() || n_threads == 1) break;
      }
    }
  }
  return 0;
}
