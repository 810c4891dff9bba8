#include <algorithm>
#include <cstddef>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/read_bandwidth.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kInFlight = 4;

__global__ void read_kernel(const uint4* from, std::size_t n, unsigned* sink) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * kThreads;
  unsigned sum = 0;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i + (kInFlight - 1) * step < n;
       i += kInFlight * step) {
    uint4 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) v[k] = __ldcs(from + i + k * step);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (sum == 0x12345678u) *sink = sum;  // keeps the loads
}

}  // namespace

cudaError_t measure_read_bandwidth(double* gb_per_s) {
  constexpr std::size_t kBytes = std::size_t{4} << 30;
  constexpr int kPasses = 12;
  int device = 0, multiprocessors = 0;
  void* memory = nullptr;
  cudaEvent_t begin, end;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) error = cudaMalloc(&memory, kBytes + sizeof(unsigned));
  if (error != cudaSuccess) return error;
  cudaMemset(memory, 1, kBytes);
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e9F;
  for (int i = 0; i < kPasses && error == cudaSuccess; ++i) {
    cudaEventRecord(begin);
    error = launch_kernel(read_kernel, {multiprocessors * 16, kThreads}, nullptr, static_cast<const uint4*>(memory),
                          kBytes / sizeof(uint4), reinterpret_cast<unsigned*>(static_cast<char*>(memory) + kBytes));
    cudaEventRecord(end);
    if (error == cudaSuccess) error = cudaEventSynchronize(end);
    float ms = 0;
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, begin, end);
    best = std::min(best, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaFree(memory);
  *gb_per_s = kBytes / best * 1e-6;
  return error;
}

}  // namespace nibble::kernels::cuda
