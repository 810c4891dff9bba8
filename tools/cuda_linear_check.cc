// The NVFP4 linear kernels of CUDA against the oracle, bit for bit, on the GPU of this machine.
//
// usage: cuda_linear_check [SEED [all|gemv|gemm [nc1|nc1-f16|w4a4]]]     (default: a fresh seed, all routes and
// contracts)
//
// Every case draws weights and activations, poisons the output, runs a route and compares. Each kind of weights is
// there: certified blocks only, none, both; scales that are zero, subnormal, negative, large. The last case flips a bit
// of the weights on the device and must be found out. Exits 1 if any comparison surprises.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_linear_input.h"
#include "format/nvfp4.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear_nvfp4.h"
#include "kernels/cuda/linear_w4a4.h"
#include "oracle/linear.h"

namespace {

using namespace nibble;
using namespace nibble::tools;

enum class Kind { kCertified, kWild, kMixed };
constexpr const char* kKindNames[] = {"certified", "wild", "mixed"};
constexpr const char* kRouteNames[] = {"auto", "gemv", "gemm", "gemm_mma"};
constexpr std::uint32_t kPoison = 0x7FC0DEAD;
constexpr int kMostReports = 40;
constexpr int kGap = 3;  // floats between rows of the output that nobody may touch

struct Layer {
  int n_out, n_in;
  float tensor_scale;
  std::vector<std::uint8_t> codes, scales;
  std::vector<float> bias;  // empty: none

  oracle::Nvfp4Row row(int r) const {
    const std::size_t n = n_in;
    return {std::span(codes).subspan(r * n / 2, n / 2), std::span(scales).subspan(r * n / 16, n / 16), tensor_scale};
  }
};

Layer random_layer(int n_out, int n_in, Kind kind, bool has_bias, std::mt19937_64& random) {
  Layer layer{n_out,
              n_in,
              std::ldexp(1.0F + static_cast<float>(random() % 1000) * 1e-3F, static_cast<int>(random() % 16) - 12),
              std::vector<std::uint8_t>(static_cast<std::size_t>(n_out) * n_in / 2),
              std::vector<std::uint8_t>(static_cast<std::size_t>(n_out) * n_in / 16),
              {}};
  for (std::uint8_t& c : layer.codes) c = static_cast<std::uint8_t>(random());
  const std::size_t per_row = n_in / 16;
  for (std::size_t i = 0; i < layer.scales.size(); ++i) {
    const std::uint64_t r = random();
    const bool wild = kind == Kind::kWild || (kind == Kind::kMixed && i / per_row % 53 == 7);
    const std::uint32_t byte = wild ? r % 127 : 72 + r % 8;  // any exponent and subnormal ones, or one exponent
    const std::uint32_t sign = r >> 8 & 0x80;                // legal, and folded into the codes by the packer
    layer.scales[i] = static_cast<std::uint8_t>((r >> 20) % 97 == 0 ? sign : byte | sign);
  }
  if (has_bias) {
    for (int i = 0; i < n_out; ++i)
      layer.bias.push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 1e-2F);
  }
  return layer;
}

struct DeviceLayer {
  DeviceArray<std::uint8_t> packed;
  DeviceArray<float> bias, out;
  Nvfp4Segment segment;
};
DeviceLayer upload(const Layer& layer, int n_rows, bool distrust, Nvfp4Sums sums) {
  DeviceArray<std::uint8_t> codes(layer.codes), scales(layer.scales);
  const int stride = layer.n_out + kGap;
  DeviceLayer device{DeviceArray<std::uint8_t>(nvfp4_packed_bytes(layer.n_out, layer.n_in)),
                     DeviceArray<float>(layer.bias),
                     DeviceArray<float>(static_cast<std::size_t>(n_rows) * stride),
                     {}};
  Nvfp4PackArgs args{codes.data,         scales.data,        layer.n_out, layer.n_in,
                     layer.tensor_scale, device.packed.data, distrust,    sums};
  MUST(pack_nvfp4(args, nullptr));
  MUST(finish_packing(args, &device.segment.weights, nullptr));
  device.segment.bias = layer.bias.empty() ? nullptr : device.bias.data;
  device.segment.out = device.out.data;
  device.segment.out_stride = stride;
  return device;
}

// Outputs that differ from the oracle in any bit; all of a small case, a sample of a large one.
int count_wrong(const Layer& layer, const Input& input, const std::vector<float>& out) {
  constexpr std::size_t kMost = std::size_t{1} << 25;  // products
  const std::size_t outputs = static_cast<std::size_t>(layer.n_out) * input.n_rows;
  const std::size_t step = std::max<std::size_t>(1, outputs * layer.n_in / kMost) | 1;
  const int n_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<int> wrong(n_threads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < n_threads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t * step; i < outputs; i += n_threads * step) {
        const int row = static_cast<int>(i % layer.n_out), token = static_cast<int>(i / layer.n_out);
        float want = input.is_nc1_f16() ? oracle::dot_nvfp4_a16q8(layer.row(row), input.a16q8[token])
                                        : oracle::dot_nvfp4_a11(layer.row(row), input.a11[token]);
        if (!layer.bias.empty()) want += layer.bias[row];
        const float got = out[static_cast<std::size_t>(token) * (layer.n_out + kGap) + row];
        wrong[t] += std::memcmp(&want, &got, sizeof(float)) != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int total = 0;
  for (int w : wrong) total += w;
  for (int token = 0; token < input.n_rows; ++token) {
    for (int gap = 0; gap < kGap; ++gap) {
      const float value = out[static_cast<std::size_t>(token) * (layer.n_out + kGap) + layer.n_out + gap];
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      total += bits != kPoison;
    }
  }
  return total;
}

class Checker {
 public:
  Checker(std::uint64_t seed, Nvfp4Sums sums) : random_(seed), sums_(sums) {}

  int run(const std::vector<int>& n_out, int n_in, int n_rows, Kind kind, bool distrust, float magnitude,
          const std::vector<Nvfp4Route>& routes, bool sabotage = false) {
    const Input input = random_input(n_rows, n_in, magnitude, random_, sums_);
    DeviceInput device_input = upload(input);
    std::vector<Layer> layers;
    std::vector<DeviceLayer> devices;
    Nvfp4LinearArgs args{device_input.view, {}, static_cast<int>(n_out.size()), Nvfp4Route::kAuto, sums_};
    int n_exact = 0;
    for (std::size_t s = 0; s < n_out.size(); ++s) {
      layers.push_back(random_layer(n_out[s], n_in, kind, s % 2 == 1, random_));
      devices.push_back(upload(layers.back(), n_rows, distrust, sums_));
      args.segments[s] = devices.back().segment;
      n_exact += args.segments[s].weights.n_exact_tiles;
    }
    if (sabotage) MUST(cudaMemset(devices[0].packed.data + 5, 0x5A, 1));
    int failures = 0;
    for (const Nvfp4Route route : routes) {
      args.route = route;
      int wrong = 0;
      for (std::size_t s = 0; s < layers.size(); ++s) {
        const std::vector<std::uint32_t> poison(devices[s].out.size, kPoison);
        MUST(cudaMemcpy(devices[s].out.data, poison.data(), poison.size() * 4, cudaMemcpyHostToDevice));
      }
      MUST(linear_nvfp4(args, nullptr));
      MUST(cudaDeviceSynchronize());
      for (std::size_t s = 0; s < layers.size(); ++s) wrong += count_wrong(layers[s], input, devices[s].out.read());
      ++n_cases_;
      const bool failed = (wrong != 0) != sabotage;
      failures += failed;
      if ((failed && n_failures_ + failures <= kMostReports) || sabotage) {
        fmt::print("{} N {} (of {}) K {} M {} {} {}{}: {} wrong, {} exact tiles\n", failed ? "FAIL" : "control",
                   n_out[0], n_out.size(), n_in, n_rows, kKindNames[static_cast<int>(kind)],
                   kRouteNames[static_cast<int>(route)], distrust ? " distrusted" : "", wrong, n_exact);
      }
    }
    n_failures_ += failures;
    n_exact_ += n_exact;
    return failures;
  }

  int n_cases() const { return n_cases_; }
  int n_failures() const { return n_failures_; }
  int n_exact() const { return n_exact_; }

 private:
  std::mt19937_64 random_;
  Nvfp4Sums sums_;
  int n_cases_ = 0, n_failures_ = 0, n_exact_ = 0;
};

// All cases of a contract; returns how many failed.
int check(const char* contract, Nvfp4Sums sums, std::uint64_t seed, const std::string& only) {
  Checker checker(seed, sums);
  using R = Nvfp4Route;
  std::vector<R> all = {R::kGemv, R::kGemm, R::kGemmMmaSync};
  if (only == "gemv") all = {R::kGemv};
  if (only == "gemm") all = {R::kGemmMmaSync, R::kGemm};
  // Rows of activations, at the edges of tiles.
  for (int m = 1; m <= 17; ++m) checker.run({100}, 320, m, Kind::kCertified, false, 1.0F, all);
  for (int m : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 256, 257}) {
    for (Kind kind : {Kind::kCertified, Kind::kWild, Kind::kMixed}) checker.run({219}, 576, m, kind, false, 3.0F, all);
  }
  fmt::print("{}: {} cases, {} failures so far\n", contract, checker.n_cases(), checker.n_failures());
  // K, N.
  for (int k : {16, 32, 48, 64, 80, 128, 144, 256, 576, 1536, 4096, 14336}) {
    for (int m : {1, 8, 16, 33, 130}) {
      for (Kind kind : {Kind::kCertified, Kind::kMixed})
        checker.run({k > 2000 ? 333 : 1003}, k, m, kind, false, 0.5F, all);
    }
  }
  for (int n : {1, 2, 15, 16, 17, 127, 128, 129, 191, 192, 193, 2111, 2113}) {
    for (int m : {1, 5, 16, 64, 129}) checker.run({n}, 256, m, Kind::kCertified, false, 2.0F, all);
  }
  fmt::print("{}: {} cases, {} failures so far\n", contract, checker.n_cases(), checker.n_failures());
  // Many tiles for each block of threads, several groups of them; layers that share an input.
  for (int m : {1, 8, 16, 200}) {
    checker.run({38000}, 192, m, Kind::kMixed, false, 1.0F, only == "gemm" ? all : std::vector<R>{R::kGemv});
    checker.run({16 * 132 * 3 + 5}, 1152, m, Kind::kMixed, false, 1.0F, all);
    checker.run({576, 192, 192}, 576, m, Kind::kMixed, false, 1.0F, all);
    checker.run({1500, 1501, 77, 4096}, 960, m, Kind::kCertified, false, 1.0F, all);
  }
  // Certified weights on the exact route, factors beyond the unit of the sums, tiny ones.
  for (int m : {1, 3, 16, 129}) {
    checker.run({200}, 1024, m, Kind::kCertified, true, 1.0F, all);
    if (sums == Nvfp4Sums::kSuperBlocks) {  // f16 holds less
      checker.run({200}, 1152, m, Kind::kMixed, false, 0x1p13F, all);
      checker.run({200}, 1152, m, Kind::kMixed, false, 0x1p-22F, all);
      continue;
    }
    checker.run({200}, 1024, m, Kind::kMixed, false, 0x1p90F, all);
    checker.run({200}, 1024, m, Kind::kMixed, false, 0x1p113F, all);
    checker.run({200}, 1024, m, Kind::kMixed, false, 0x1p-38F, all);
  }
  for (const R route : all) checker.run({64}, 256, 20, Kind::kCertified, false, 1.0F, {route}, true);
  fmt::print("{}: {} cases, {} exact tiles, {} failures\n", contract, checker.n_cases(), checker.n_exact(),
             checker.n_failures());
  return checker.n_failures();
}

// --- w4a4: rows of integers and int8 tensor cores, both of which must have the oracle's bits ---

class W4A4Checker {
 public:
  explicit W4A4Checker(std::uint64_t seed) : random_(seed) {}

  // Wrong outputs of both kernels; with `sabotage` a code is another on the device.
  int run(int n_out, int n_in, int n_rows, Kind kind, bool sabotage = false) {
    constexpr float kInputScaleInv = 12.5F;
    const Layer layer = random_layer(n_out, n_in, kind, random_() % 2 == 0, random_);
    const int columns = w4a4_blocks(n_in) * kW4A4Block;
    std::vector<oracle::W4A4> rows;
    std::vector<std::int8_t> q1(static_cast<std::size_t>(n_rows) * n_in),
        tiles_q1(static_cast<std::size_t>(n_rows) * columns);
    std::vector<std::int32_t> q9(q1.size() / 16), tiles_q9(tiles_q1.size() / 16);
    std::normal_distribution<float> normal(0.0F, 2.0F);
    std::vector<float> x(n_in);
    for (std::size_t r = 0; r < static_cast<std::size_t>(n_rows); ++r) {
      for (std::size_t k = 0; k < x.size(); ++k) x[k] = normal(random_) * (k / 16 % 5 == 1 ? 0x1p-9F : 1.0F);
      rows.push_back(oracle::quantize_w4a4(x, kInputScaleInv));
      for (int k = 0; k < n_in; ++k) {
        const auto code = static_cast<std::int8_t>(format::e2m1_x2(rows[r].codes[k]));
        q1[r * n_in + k] = code;
        tiles_q1[r * columns + w4a4_input_position(k)] = code;
        if (k % 16 == 0)
          q9[(r * n_in + k) / 16] = tiles_q9[(r * columns + k) / 16] = format::e4m3_x512(rows[r].scales[k / 16]);
      }
    }
    const DeviceArray<std::uint8_t> codes(layer.codes), scales(layer.scales), packed(w4a4_packed_bytes(n_out, n_in));
    const DeviceArray<std::int8_t> in_order(q1), for_tiles(tiles_q1);
    const DeviceArray<std::int32_t> in_order_q9(q9), for_tiles_q9(tiles_q9);
    const DeviceArray<float> bias(layer.bias), out(static_cast<std::size_t>(n_rows) * n_out);
    const float* added = layer.bias.empty() ? nullptr : bias.data;
    MUST(launch(PackW4A4Args{codes.data, scales.data, n_out, n_in, packed.data}, nullptr));
    if (sabotage) MUST(cudaMemset(packed.data + 1, 0x5A, 1));  // in a group whose activations are not tiny
    const auto wrong = [&](auto&& launch_it) {
      const std::vector<std::uint32_t> poison(out.size, kPoison);
      MUST(cudaMemcpy(out.data, poison.data(), poison.size() * 4, cudaMemcpyHostToDevice));
      MUST(launch_it());
      MUST(cudaDeviceSynchronize());
      return count_wrong(layer, rows, kInputScaleInv, out.read());
    };
    const int by_tiles = wrong([&] {
      return launch(LinearW4A4TilesArgs{{packed.data, n_out, n_in, layer.tensor_scale, kInputScaleInv},
                                        {for_tiles.data, for_tiles_q9.data},
                                        added,
                                        out.data,
                                        n_rows},
                    nullptr);
    });
    const int by_integers = wrong([&] {
      const Nvfp4Rows w{n_out, n_in, codes.data, scales.data, 0, layer.tensor_scale, kInputScaleInv};
      return launch(LinearW4A4Args{w, {in_order.data, in_order_q9.data, n_in}, added, out.data, n_rows}, nullptr);
    });
    ++n_cases_;
    const bool failed = (by_tiles != 0) != sabotage || by_integers != 0;
    if (failed || sabotage) {
      fmt::print("{} w4a4 N {} K {} M {} {}: {} wrong on tensor cores, {} by integers\n", failed ? "FAIL" : "control",
                 n_out, n_in, n_rows, kKindNames[static_cast<int>(kind)], by_tiles, by_integers);
    }
    return failed;
  }
  int n_cases() const { return n_cases_; }

 private:
  static int count_wrong(const Layer& layer, const std::vector<oracle::W4A4>& rows, float input_scale_inv,
                         const std::vector<float>& out) {
    int wrong = 0;
    const std::size_t step = std::max<std::size_t>(1, out.size() * layer.n_in / (std::size_t{1} << 22)) | 1;
    for (std::size_t i = 0; i < out.size(); i += step) {
      const int row = static_cast<int>(i % layer.n_out);
      float want = oracle::dot_nvfp4_w4a4(layer.row(row), rows[i / layer.n_out], input_scale_inv);
      if (!layer.bias.empty()) want += layer.bias[row];
      wrong += std::memcmp(&want, &out[i], sizeof(float)) != 0;
    }
    return wrong;
  }
  std::mt19937_64 random_;
  int n_cases_ = 0;
};

int check_w4a4(std::uint64_t seed) {
  W4A4Checker checker(seed);
  int failures = 0;
  for (int m : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    for (Kind kind : {Kind::kCertified, Kind::kWild, Kind::kMixed}) failures += checker.run(219, 576, m, kind);
  }
  for (int k : {16, 32, 48, 64, 80, 128, 144, 256, 576, 1536, 4096, 14336}) {
    for (int m : {1, 8, 16, 33, 130}) failures += checker.run(k > 2000 ? 333 : 1003, k, m, Kind::kMixed);
  }
  for (int n : {1, 2, 15, 16, 17, 127, 128, 129, 191, 192, 193, 2111}) {
    for (int m : {1, 5, 16, 64, 129}) failures += checker.run(n, 256, m, Kind::kWild);
  }
  for (int m : {1, 16, 20, 100}) failures += checker.run(64, 256, m, Kind::kCertified, true);
  fmt::print("w4a4: {} cases, {} failures\n", checker.n_cases(), failures);
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::random_device{}();
  const std::string routes = argc > 2 ? argv[2] : "all", contract = argc > 3 ? argv[3] : "";
  cudaDeviceProp device;
  MUST(cudaGetDeviceProperties(&device, 0));
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  fmt::print("{} (sm_{}{}), seed {}\n", device.name, device.major, device.minor, seed);
  int n_failures = 0;
  const auto is_wanted = [&](std::string_view name) { return contract.empty() || contract == name; };
  if (is_wanted("nc1")) n_failures += check("nc1", Nvfp4Sums::kBlocks, seed, routes);
  if (is_wanted("nc1-f16")) n_failures += check("nc1-f16", Nvfp4Sums::kSuperBlocks, seed, routes);
  if (is_wanted("w4a4")) n_failures += check_w4a4(seed);
  return n_failures == 0 ? 0 : 1;
}
