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

struct Input {
  int n_rows, n_in;
  std::vector<oracle::A11> rows;
};
inline Input random_input(int n_rows, int n_in, float magnitude, std::mt19937_64& random) {
  Input input{n_rows, n_in, {}};
  std::normal_distribution<float> normal(0.0F, magnitude);
  std::vector<float> x(n_in);
  for (int r = 0; r < n_rows; ++r) {
    for (float& v : x) v = normal(random);
    if (r % 5 == 3) std::fill_n(x.begin(), std::min(64, n_in), 0.0F);  // a block of zeros
    input.rows.push_back(oracle::quantize_a11(x));
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
    const oracle::A11& row = input.rows[r];
    for (int k = 0; k < input.n_in; ++k) {
      q[static_cast<std::size_t>(r) * padded + nvfp4_input_position(k)] = half_of_integer(row.q[k]);
    }
    for (int b = 0; b < padded / 64; ++b) {
      d[static_cast<std::size_t>(b) * stride + r] = b < static_cast<int>(row.d.size()) ? row.d[b] : 0.0F;
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
