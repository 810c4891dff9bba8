// Speed of the NVFP4 linear kernels of CUDA beside the read bandwidth of the same run, and beside cuBLAS (--peer, what
// tools/cublas_bf16.py wrote).
//
// Every kernel runs in contract nc1, in nc1-f16, and with the free sums of `native`, side by side. What sums integers
// for nc1-f16 and w4a4, and the int8 tensor cores of w4a4, is apart (--integers).
//
// One to sixteen rows: dependent launches in a graph, over copies of the weights of more than 2 GB together, so that
// none is in the L2 cache. More rows: launches one after the other. Medians of at least 20, with the fastest and the
// slowest.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cuda_linear_input.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear_w4a4.h"
#include "kernels/cuda/read_bandwidth.h"
#include "measure/facts.h"
#include "measure/statistics.h"

namespace {

using namespace nibble;
using namespace nibble::tools;
using measure::Json;

constexpr int kRepetitions = 25;

struct Contract {
  const char* name;
  Nvfp4Sums sums;
};
constexpr Contract kContracts[] = {
    {"nc1", Nvfp4Sums::kBlocks}, {"nc1-f16", Nvfp4Sums::kSuperBlocks}, {"native", Nvfp4Sums::kFree}};

// Seconds of each run.
std::vector<double> time(cudaStream_t stream, const std::function<void()>& run) {
  constexpr int kWarmUp = 4;
  cudaEvent_t begin, end;
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUp + kRepetitions; ++i) {
    MUST(cudaEventRecord(begin, stream));
    run();
    MUST(cudaEventRecord(end, stream));
    MUST(cudaEventSynchronize(end));
    float ms = 0;
    MUST(cudaEventElapsedTime(&ms, begin, end));
    if (i >= kWarmUp) seconds.push_back(ms * 1e-3);
  }
  MUST(cudaEventDestroy(begin));
  MUST(cudaEventDestroy(end));
  return seconds;
}

struct Microseconds {
  double median, best, worst;
};
// Of one of `launches` that a sample holds.
Microseconds summary(const std::vector<double>& seconds, int launches = 1) {
  const auto [best, worst] = std::ranges::minmax(seconds);
  const double us = 1e6 / launches;
  return {measure::median(seconds) * us, best * us, worst * us};
}

// Copies of one packed layer of random weights. Rows repeat every 1,024: nobody looks, and the host is slow.
class WeightCopies {
 public:
  WeightCopies(int n_out, int n_in, std::size_t at_least, Nvfp4Sums sums)
      : bytes_((nvfp4_packed_bytes(n_out, n_in) + 255) / 256 * 256),
        n_(static_cast<int>(std::max<std::size_t>(1, (at_least + bytes_ - 1) / bytes_))),
        packed_(bytes_ * n_) {
    const std::size_t n_codes = static_cast<std::size_t>(n_out) * n_in / 2, n_scales = n_codes / 8;
    DeviceArray<std::uint8_t> codes(n_codes), scales(n_scales);
    fill(codes, static_cast<std::size_t>(512) * n_in, [](std::uint64_t r) { return static_cast<std::uint8_t>(r); });
    // Three exponents and every mantissa, as real weights have; all but a few blocks are certified.
    fill(scales, static_cast<std::size_t>(64) * n_in,
         [](std::uint64_t r) { return static_cast<std::uint8_t>(88 + r % 16); });
    const Nvfp4PackArgs args{codes.data, scales.data, n_out, n_in, 0.01F, packed_.data, false, sums};
    MUST(pack_nvfp4(args, nullptr));
    MUST(finish_packing(args, &weights_, nullptr));
    for (int i = 1; i < n_; ++i) {
      MUST(cudaMemcpy(packed_.data + bytes_ * i, packed_.data, bytes_, cudaMemcpyDeviceToDevice));
    }
    MUST(cudaDeviceSynchronize());
  }
  int size() const { return n_; }
  Nvfp4Weights at(int i) const {
    Nvfp4Weights w = weights_;
    w.packed = packed_.data + bytes_ * (i % n_);
    return w;
  }
  int n_exact_tiles() const { return weights_.n_exact_tiles; }

 private:
  template <typename F>
  static void fill(const DeviceArray<std::uint8_t>& to, std::size_t period, F draw) {
    std::mt19937_64 random(7);
    std::vector<std::uint8_t> host(std::min(period, to.size));
    for (std::uint8_t& v : host) v = draw(random());
    for (std::size_t at = 0; at < to.size; at += host.size()) {
      MUST(cudaMemcpy(to.data + at, host.data(), std::min(host.size(), to.size - at), cudaMemcpyHostToDevice));
    }
  }

  std::size_t bytes_;
  int n_;
  DeviceArray<std::uint8_t> packed_;
  Nvfp4Weights weights_;
};

// Seconds of a graph of `launches` dependent launches.
std::vector<double> time_chain(cudaStream_t stream, const WeightCopies& weights, int launches, Nvfp4LinearArgs args) {
  const Nvfp4Segment segment = args.segments[0];
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < launches; ++i) {
    args.segments[0] = {weights.at(i), segment.bias, segment.out, segment.out_stride};
    MUST(linear_nvfp4(args, stream));
  }
  MUST(cudaStreamEndCapture(stream, &graph));
  MUST(cudaGraphInstantiate(&executable, graph, 0));
  const std::vector<double> seconds = time(stream, [&] { MUST(cudaGraphLaunch(executable, stream)); });
  MUST(cudaGraphExecDestroy(executable));
  MUST(cudaGraphDestroy(graph));
  return seconds;
}

void bench_gemv(int n_out, int n_in, const std::vector<int>& rows, double read, Json& report) {
  std::mt19937_64 random(1);
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  for (const Contract& contract : kContracts) {
    const WeightCopies weights(n_out, n_in, std::size_t{2300} << 20, contract.sums);
    const int launches = std::max(weights.size(), 24);
    for (int m : rows) {
      const DeviceInput input = upload(random_input(m, n_in, 1.0F, random, contract.sums));
      const DeviceArray<float> out(static_cast<std::size_t>(m) * n_out);
      Nvfp4LinearArgs args{input.view, {}, 1, Nvfp4Route::kGemv, contract.sums};
      args.segments[0] = {{}, nullptr, out.data, n_out};
      const std::vector<double> seconds = time_chain(stream, weights, launches, args);
      const Microseconds us = summary(seconds, launches);
      const double bytes = static_cast<double>(n_out) * n_in * 9 / 16, gbps = bytes / us.median * 1e-3;
      fmt::print(
          "{:7} gemv {:5} x {:5} M {:2}: {:7.2f} us (best {:.2f}, worst {:.2f}) {:5.0f} GB/s {:4.1f} % of read\n",
          contract.name, n_out, n_in, m, us.median, us.best, us.worst, gbps, 100 * gbps / read);
      report.push_back({{"contract", contract.name},
                        {"n_out", n_out},
                        {"n_in", n_in},
                        {"rows", m},
                        {"launches", launches},
                        {"us_median", us.median},
                        {"us_best", us.best},
                        {"us_worst", us.worst},
                        {"samples_s", seconds},
                        {"gb_per_s", gbps},
                        {"share_of_read", gbps / read},
                        {"exact_tiles", weights.n_exact_tiles()}});
    }
  }
  MUST(cudaStreamDestroy(stream));
}

// What cuBLAS took for the same product in microseconds; 0 where the peer did not measure it.
double cublas_us(const Json& peer, int n_out, int n_in, int rows) {
  for (const Json& entry : peer) {
    const bool is_same =
        entry.value("n_out", 0) == n_out && entry.value("n_in", 0) == n_in && entry.value("rows", 0) == rows;
    if (is_same) return entry.value("us_median", 0.0);
  }
  return 0;
}

void bench_gemm(int n_out, int n_in, const std::vector<int>& rows, const Json& peer, Json& report) {
  std::mt19937_64 random(1);
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  for (int m : rows) {
    const DeviceArray<float> out(static_cast<std::size_t>(m) * n_out);
    for (const Contract& contract : kContracts) {
      const WeightCopies weights(n_out, n_in, std::size_t{300} << 20, contract.sums);
      const DeviceInput input = upload(random_input(m, n_in, 1.0F, random, contract.sums));
      for (const Nvfp4Route route : {Nvfp4Route::kGemm, Nvfp4Route::kGemmMmaSync}) {
        int i = 0;
        const std::vector<double> seconds = time(stream, [&] {
          Nvfp4LinearArgs args{input.view, {}, 1, route, contract.sums};
          args.segments[0] = {weights.at(i++), nullptr, out.data, n_out};
          MUST(linear_nvfp4(args, stream));
        });
        const char* name = route == Nvfp4Route::kGemm ? "gemm" : "gemm mma.sync";
        const Microseconds us = summary(seconds);
        const double rate = 2.0 * n_out * n_in * m / us.median * 1e-6;  // TFLOP/s
        const double theirs = cublas_us(peer, n_out, n_in, m);
        const std::string beside = theirs > 0 ? fmt::format(", {:.1f} % of cuBLAS", 100 * theirs / us.median) : "";
        fmt::print("{:7} {:13} {:5} x {:5} M {:4}: {:8.1f} us (best {:.1f}, worst {:.1f}) {:4.0f} TFLOP/s{}\n",
                   contract.name, name, n_out, n_in, m, us.median, us.best, us.worst, rate, beside);
        report.push_back({{"contract", contract.name},
                          {"kernel", name},
                          {"n_out", n_out},
                          {"n_in", n_in},
                          {"rows", m},
                          {"us_median", us.median},
                          {"us_best", us.best},
                          {"us_worst", us.worst},
                          {"samples_s", seconds},
                          {"tflop_per_s", rate},
                          {"exact_tiles", weights.n_exact_tiles()}});
        if (theirs > 0) report.back()["cublas_us"] = theirs, report.back()["share_of_cublas"] = theirs / us.median;
      }
    }
  }
  MUST(cudaStreamDestroy(stream));
}

// Bytes from a seed: what is multiplied does not matter to kernels that sum integers.
DeviceArray<std::uint8_t> random_bytes(std::size_t n, int below) {
  constexpr std::size_t kPeriod = 1 << 20;  // the host is slow
  std::mt19937_64 random(7);
  std::vector<std::uint8_t> bytes(n);
  for (std::size_t i = 0; i < n; ++i) {
    bytes[i] = i < kPeriod ? static_cast<std::uint8_t>(random() % below) : bytes[i - kPeriod];
  }
  return DeviceArray<std::uint8_t>(bytes);
}

// Launches right behind one another, over copies of more than 300 MB.
void bench_integers(int n_out, int n_in, const std::vector<int>& rows, Json& report) {
  constexpr int kMostRowsOfAChain = 16;
  const std::size_t n_codes = static_cast<std::size_t>(n_out) * n_in / 2, tiles = w4a4_packed_bytes(n_out, n_in);
  const int n_copies = static_cast<int>((std::size_t{300} << 20) / (n_codes * 9 / 8) + 1);
  const auto codes = random_bytes(n_codes * n_copies, 256), scales = random_bytes(n_codes / 8 * n_copies, 112),
             packed = random_bytes(tiles * n_copies, 256);
  const auto rows_at = [&](int i) {
    const std::size_t at = i % n_copies * n_codes;
    return Nvfp4Rows{n_out, n_in, codes.data + at, scales.data + at / 8, 1.0F, 1.0F, 1.0F};
  };
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  for (int m : rows) {
    const std::size_t columns = static_cast<std::size_t>(m) * super_blocks(n_in) * kSuperBlockColumns;
    const auto input = random_bytes(columns, 12), factors = random_bytes(columns / 4, 1);
    const DeviceArray<float> out(static_cast<std::size_t>(m) * n_out);
    auto* const q = reinterpret_cast<std::int8_t*>(input.data);
    auto* const q9 = reinterpret_cast<std::int32_t*>(factors.data);
    const int launches = m <= kMostRowsOfAChain ? 24 : 1;
    const auto bench = [&](const char* contract, const char* kernel, auto&& launch_one) {
      int i = 0;
      const std::vector<double> seconds = time(stream, [&] {
        for (int n = 0; n < launches; ++n) MUST(launch_one(i++));
      });
      const Microseconds us = summary(seconds, launches);
      fmt::print("{:7} {:13} {:5} x {:5} M {:4}: {:8.1f} us (best {:.1f}, worst {:.1f})\n", contract, kernel, n_out,
                 n_in, m, us.median, us.best, us.worst);
      report.push_back({{"contract", contract},
                        {"kernel", kernel},
                        {"n_out", n_out},
                        {"n_in", n_in},
                        {"rows", m},
                        {"launches", launches},
                        {"us_median", us.median},
                        {"us_best", us.best},
                        {"us_worst", us.worst},
                        {"samples_s", seconds}});
    };
    const QuantizedA16Q8 a16q8{.q = q, .d = reinterpret_cast<float*>(factors.data)};
    bench("nc1-f16", "integers", [&](int i) {
      return launch(LinearA16Q8Args{rows_at(i), a16q8, nullptr, out.data, m}, stream);
    });
    bench("w4a4", "integers", [&](int i) {
      return launch(LinearW4A4Args{rows_at(i), {q, q9, n_in}, nullptr, out.data, m}, stream);
    });
    bench("w4a4", "int8 mma.sync", [&](int i) {
      const W4A4Weights weights{packed.data + i % n_copies * tiles, n_out, n_in, 1.0F, 1.0F};
      return launch(LinearW4A4TilesArgs{weights, {q, q9}, nullptr, out.data, m}, stream);
    });
  }
  MUST(cudaStreamDestroy(stream));
}

struct Shape {
  int n_out, n_in;
};
const std::vector<Shape> kFewRows = {{4096, 4096},  {6144, 4096},  {14336, 4096},
                                     {4096, 14336}, {28672, 8192}, {8192, 28672}};
const std::vector<Shape> kManyRows = {{14336, 4096}, {4096, 14336}};

struct Options {
  std::string output, peer;
  std::vector<int> gemv_rows = {1, 2, 8, 16}, gemm_rows = {64, 128, 512, 2048, 8192},
                   integer_rows = {1, 8, 16, 128, 512, 2048}, shape;
};

Status run(const Options& flags) {
  Json peer = Json::array();
  if (!flags.peer.empty()) {
    NIBBLE_ASSIGN(const std::string text, measure::read_text(flags.peer));
    const Json receipt = Json::parse(text, nullptr, false);
    if (!receipt.is_object() || !receipt.contains("cublas_bf16")) {
      return Error{.message = "not a receipt of cublas_bf16.py", .file = flags.peer};
    }
    peer = receipt["cublas_bf16"];
  }
  cudaDeviceProp device;
  MUST(cudaGetDeviceProperties(&device, 0));
  double read = 0;
  MUST(measure_read_bandwidth(&read));
  fmt::print("{}: read {:.0f} GB/s\n", device.name, read);
  Json report = {{"device", device.name},    {"multiprocessors", device.multiProcessorCount},
                 {"read_gb_per_s", read},    {"repetitions", kRepetitions},
                 {"gemv", Json::array()},    {"gemm", Json::array()},
                 {"integers", Json::array()}};
  const auto shapes = [&](const std::vector<Shape>& all) {
    return flags.shape.empty() ? all : std::vector<Shape>{{flags.shape[0], flags.shape[1]}};
  };
  for (const auto& [n_out, n_in] : shapes(kFewRows)) bench_gemv(n_out, n_in, flags.gemv_rows, read, report["gemv"]);
  MUST(measure_read_bandwidth(&read));
  fmt::print("read {:.0f} GB/s at the end\n", read);
  report["read_gb_per_s_at_end"] = read;
  for (const auto& [n_out, n_in] : shapes(kManyRows)) bench_gemm(n_out, n_in, flags.gemm_rows, peer, report["gemm"]);
  for (const auto& [n_out, n_in] : shapes(kManyRows)) {
    bench_integers(n_out, n_in, flags.integer_rows, report["integers"]);
  }
  report.update(measure::program_facts());
  report["host"] = measure::machine_facts();
  return measure::write_json(report, flags.output);
}

}  // namespace

int main(int argc, char** argv) {
  Options flags;
  CLI::App app{"NVFP4 layers on a GPU beside its read bandwidth and cuBLAS"};
  app.add_option("--gemv", flags.gemv_rows, "Rows of the kernels for few; up to 16")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--gemm", flags.gemm_rows, "Rows of the kernels for many")->delimiter(',')->capture_default_str();
  app.add_option("--integers", flags.integer_rows, "Rows of the kernels that sum integers")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--shape", flags.shape, "N_OUT N_IN: of all shapes this one")->expected(2);
  app.add_option("--peer", flags.peer, "Receipt of cublas_bf16.py");
  app.add_option("-o,--output", flags.output, "Receipt (JSON)")->required();
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Status status = run(flags);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.error().to_string());
  return status.ok() ? 0 : 1;
}
