// Speed of ggml's CUDA products of NVFP4 weights, on the shapes and in the manner of cuda_linear_bench: through ggml's
// backend, a graph of products over copies of the weights of 2 GB together, so that none is in the L2 cache.
//
// usage: cuda_ggml_linear OUT.json
//
// A product is two kernels: activations to q8_1, and the sums. Some outputs are compared with f64 first.
// tools/build_cuda_ggml.sh builds it.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "format/nvfp4.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cuda.h"
#include "ggml-cuda/quantize.cuh"
#include "ggml.h"

namespace {

namespace format = nibble::format;

constexpr long kBlock = 64, kGroup = 16, kBlockBytes = 36;  // of ggml's NVFP4: four scales, then the codes
constexpr int kRepetitions = 21;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

struct Microseconds {
  double median, best, worst;
};
Microseconds measure(int products, const std::function<void()>& run) {
  constexpr int kWarmUp = 4;
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + kRepetitions; ++i) {
    const auto begin = Clock::now();
    run();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (i >= kWarmUp) times.push_back(took.count() / products);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

struct Matrix {
  long n, k;
  std::vector<std::uint8_t> blocks;  // [n, k / 64, 36]
};

Matrix random_matrix(long n, long k, std::mt19937& random) {
  Matrix m{n, k, std::vector<std::uint8_t>(static_cast<std::size_t>(n * k / kBlock * kBlockBytes))};
  for (std::size_t i = 0; i < m.blocks.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(random());
    m.blocks[i] = i % kBlockBytes < 4 ? 48 + byte % 24 : byte;  // scales of three octaves
  }
  return m;
}

// |value - sum in f64| relative to the root of the sum of the squared products.
double error_of(const Matrix& m, long row, const float* x, float value) {
  double sum = 0, squares = 0;
  for (long k = 0; k < m.k; ++k) {
    const std::uint8_t* block = &m.blocks[static_cast<std::size_t>((row * m.k + k) / kBlock * kBlockBytes)];
    const long group = k % kBlock / kGroup, i = k % kGroup;
    const unsigned byte = block[4 + group * 8 + i % 8];
    const double product =
        double{format::e2m1_decode(i < 8 ? byte & 15U : byte >> 4)} * double{format::e4m3_decode(block[group])} * x[k];
    sum += product;
    squares += product * product;
  }
  return std::fabs(value - sum) / std::sqrt(squares);
}

// The first of the two kernels by itself.
Microseconds measure_quantization(long k, long m) {
  constexpr int kLaunches = 64;
  constexpr long kMostRowsOfGemv = 8, kPadding = 512;
  const long padded = (k + kPadding - 1) / kPadding * kPadding;
  float* x = nullptr;
  void* y = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  if (cudaMalloc(&x, sizeof(float) * k * m) != cudaSuccess || cudaMalloc(&y, 2 * padded * (m + 128)) != cudaSuccess) {
    fail("no memory");
  }
  cudaMemset(x, 0, sizeof(float) * k * m);
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  const auto quantize = m <= kMostRowsOfGemv ? quantize_row_q8_1_cuda : quantize_mmq_q8_1_cuda;
  for (int i = 0; i < kLaunches; ++i) {
    quantize(x, nullptr, y, GGML_TYPE_NVFP4, k, k, k * m, k * m, padded, m, 1, 1, stream);
  }
  cudaStreamEndCapture(stream, &graph);
  if (cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess) fail("no graph");
  const Microseconds us = measure(kLaunches, [&] {
    cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
  });
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  cudaFree(x);
  cudaFree(y);
  return us;
}

using Context = std::unique_ptr<ggml_context, decltype(&ggml_free)>;
using Memory = std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)>;
Context context_for(std::size_t bytes) {
  return {ggml_init({bytes, nullptr, true}), ggml_free};
}
Memory allocate(ggml_context* context, ggml_backend_t backend) {
  Memory memory(ggml_backend_alloc_ctx_tensors(context, backend), ggml_backend_buffer_free);
  if (memory == nullptr) fail("no memory");
  return memory;
}

void bench(ggml_backend_t backend, const Matrix& matrix, const std::vector<ggml_tensor*>& weights, long m,
           std::mt19937& random, std::FILE* json, bool is_first) {
  constexpr std::size_t kProductsOfGemm = 8;
  const long n = matrix.n, k = matrix.k;
  const std::size_t products = m <= 16 ? weights.size() : std::min(weights.size(), kProductsOfGemm);
  const std::size_t nodes = products + 8;
  const Context context = context_for(ggml_tensor_overhead() * nodes + ggml_graph_overhead_custom(nodes, false));
  ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, k, m);
  ggml_cgraph* graph = ggml_new_graph_custom(context.get(), nodes, false);
  ggml_tensor* last = nullptr;
  for (std::size_t i = 0; i < products; ++i) {
    last = ggml_mul_mat(context.get(), weights[i], x);
    ggml_build_forward_expand(graph, last);
  }
  const Memory memory = allocate(context.get(), backend);
  std::vector<float> values(static_cast<std::size_t>(k * m));
  std::normal_distribution<float> normal;
  for (float& v : values) v = normal(random);
  ggml_backend_tensor_set(x, values.data(), 0, values.size() * sizeof(float));
  if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) fail("a graph failed");

  double error = 0;
  for (long i = 0; i < 6; ++i) {
    const long row = i * 7919 % n, column = i * 31 % m;
    float value = 0;
    ggml_backend_tensor_get(last, &value, static_cast<std::size_t>(column * n + row) * sizeof value, sizeof value);
    error = std::max(error, error_of(matrix, row, &values[static_cast<std::size_t>(column * k)], value));
  }
  if (!(error < 0.1)) fail("a product is wrong");

  const Microseconds us = measure(static_cast<int>(products), [&] { ggml_backend_graph_compute(backend, graph); });
  const Microseconds quantization = measure_quantization(k, m);
  const std::size_t bytes = matrix.blocks.size();
  std::printf(
      "%5ld x %5ld M %4ld: %8.2f us (best %.2f, worst %.2f), of it %.2f for q8_1; %5.0f GB/s %6.1f TFLOP/s, error "
      "%.4f\n",
      n, k, m, us.median, us.best, us.worst, quantization.median, bytes / us.median * 1e-3,
      2.0 * n * k * m / us.median * 1e-6, error);
  std::fflush(stdout);
  std::fprintf(
      json,
      "%s\n  {\"n_out\": %ld, \"n_in\": %ld, \"rows\": %ld, \"products\": %zu, \"us_median\": %.3f, \"us_best\": %.3f, "
      "\"us_worst\": %.3f, \"us_quantization\": %.3f, \"weight_bytes\": %zu, \"error\": %.5f}",
      is_first ? "" : ",", n, k, m, products, us.median, us.best, us.worst, quantization.median, bytes, error);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::size_t kTotalBytes = 2'000'000'000, kMostCopies = 220;
  if (argc != 2) fail("usage: cuda_ggml_linear OUT.json");
  std::FILE* json = std::fopen(argv[1], "w");
  ggml_backend_t backend = ggml_backend_cuda_init(0);
  if (json == nullptr || backend == nullptr) fail("no such file, or no CUDA device");
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  std::mt19937 random(1);
  bool is_first = true;
  std::fprintf(json, "{\n \"products\": [");
  constexpr long kShapes[][2] = {{4096, 4096},  {6144, 4096},  {14336, 4096},
                                 {4096, 14336}, {28672, 8192}, {8192, 28672}};
  for (const auto& shape : kShapes) {
    const Matrix matrix = random_matrix(shape[0], shape[1], random);
    const std::size_t copies = std::min(kMostCopies, kTotalBytes / matrix.blocks.size() + 1);
    const Context context = context_for(ggml_tensor_overhead() * (copies + 1));
    std::vector<ggml_tensor*> weights;
    for (std::size_t i = 0; i < copies; ++i) {
      weights.push_back(ggml_new_tensor_2d(context.get(), GGML_TYPE_NVFP4, matrix.k, matrix.n));
    }
    const Memory memory = allocate(context.get(), backend);
    ggml_backend_buffer_set_usage(memory.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (ggml_tensor* w : weights) ggml_backend_tensor_set(w, matrix.blocks.data(), 0, matrix.blocks.size());
    for (const long m : {1L, 8L, 16L, 512L, 2048L}) {
      bench(backend, matrix, weights, m, random, json, is_first);
      is_first = false;
    }
  }
  std::fprintf(json, "\n ]\n}\n");
  std::fclose(json);
  return 0;
}
