// What the programs that try the CUDA linear kernels share: device memory, and activations in the layout of the
// kernels.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/linear_nvfp4.h"
#include "oracle/activations.h"

namespace nibble::tools {

using namespace kernels::cuda;

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fmt::print(stderr, "{}: {}\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define MUST(call) must(call, #call)

template <typename T>
struct DeviceArray {
  T* data = nullptr;
  std::size_t size;
  explicit DeviceArray(std::size_t n) : size(n) {
    MUST(cudaMalloc(reinterpret_cast<void**>(&data), std::max<std::size_t>(n, 1) * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) {
    MUST(cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& other) noexcept : data(std::exchange(other.data, nullptr)), size(other.size) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(data); }
  std::vector<T> read() const {
    std::vector<T> to(size);
    MUST(cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }
};

// Activations of contract nc1 or, where sums go over super-blocks, of nc1-f16.
struct Input {
  int n_rows, n_in;
  Nvfp4Sums sums;
  std::vector<oracle::A11> a11;
  std::vector<oracle::A16Q8> a16q8;

  bool is_nc1_f16() const { return sums == Nvfp4Sums::kSuperBlocks; }
  int integer(int row, int k) const { return is_nc1_f16() ? a16q8[row].q[k] : a11[row].q[k]; }
  float factor(int row, int block) const {  // of a block of 64; 0 beyond the last
    const std::vector<float>& d = is_nc1_f16() ? a16q8[row].d : a11[row].d;
    const std::size_t at = is_nc1_f16() ? block / (oracle::kA16Q8Block / oracle::kA11Block) : block;
    return at < d.size() ? d[at] : 0.0F;
  }
};
inline Input random_input(int n_rows, int n_in, float magnitude, std::mt19937_64& random,
                          Nvfp4Sums sums = Nvfp4Sums::kBlocks) {
  Input input{n_rows, n_in, sums, {}, {}};
  std::normal_distribution<float> normal(0.0F, magnitude);
  std::vector<float> x(n_in);
  for (int r = 0; r < n_rows; ++r) {
    for (float& v : x) v = normal(random);
    if (r % 5 == 3) std::fill_n(x.begin(), std::min(input.is_nc1_f16() ? 256 : 64, n_in), 0.0F);  // a block of zeros
    if (input.is_nc1_f16()) {
      input.a16q8.push_back(oracle::quantize_a16q8(x));
    } else {
      input.a11.push_back(oracle::quantize_a11(x));
    }
  }
  return input;
}

struct DeviceInput {
  DeviceArray<std::uint16_t> q;
  DeviceArray<float> d;
  DeviceArray<std::uint32_t> handovers;
  Nvfp4Input view;
};
inline std::uint16_t half_of_integer(int v) {
  if (v == 0) return 0;
  int magnitude = std::abs(v), exponent = 15 + 10;
  for (; magnitude < 1024; magnitude *= 2) --exponent;
  return static_cast<std::uint16_t>((v < 0 ? 0x8000 : 0) | exponent << 10 | (magnitude & 1023));
}
inline DeviceInput upload(const Input& input) {
  const int padded = nvfp4_padded_inputs(input.n_in), stride = nvfp4_d_stride(input.n_rows);
  std::vector<std::uint16_t> q(static_cast<std::size_t>(input.n_rows) * padded, 0);
  std::vector<float> d(static_cast<std::size_t>(padded / 64) * stride,
                       std::nanf(""));  // columns of no row hold anything
  for (int r = 0; r < input.n_rows; ++r) {
    for (int k = 0; k < input.n_in; ++k) {
      q[static_cast<std::size_t>(r) * padded + nvfp4_input_position(k)] = half_of_integer(input.integer(r, k));
    }
    for (int b = 0; b < padded / 64; ++b) {
      d[static_cast<std::size_t>(b) * stride + r] = input.factor(r, b);
    }
  }
  DeviceInput device{DeviceArray<std::uint16_t>(q),
                     DeviceArray<float>(d),
                     DeviceArray<std::uint32_t>(std::vector<std::uint32_t>(kNvfp4Handovers, 0)),
                     {}};
  device.view = {device.q.data, device.d.data, input.n_rows, input.n_in, stride, device.handovers.data};
  return device;
}

}  // namespace nibble::tools
