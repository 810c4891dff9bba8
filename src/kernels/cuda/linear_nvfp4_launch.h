// A launch of the NVFP4 kernels, checked and with addresses resolved: what the kernels receive.
#pragma once

#include "kernels/cuda/linear_nvfp4_device.cuh"

namespace nibble::kernels::cuda::nvfp4 {

struct Segment {
  const std::uint8_t* units;        // [n_tiles, n_pairs, kUnitBytes]
  const std::uint8_t* exact_flags;  // [n_tiles]
  const int* exact_list;
  const float* bias;
  float* out;
  int out_stride;
  int n_out;
  int n_tiles;
  float g;  // tensor_scale * 2^-10
};

struct Problem {
  const __half* q;  // [n_rows, n_pairs * 128]
  const float* d;   // [n_pairs * 2, d_stride]
  int n_rows;
  int d_stride;
  int n_pairs;
  bool is_spread;
  u32* handovers;  // [kNvfp4Handovers] or null
  int n_segments;
  Segment segments[kNvfp4MaxSegments];
};

struct Device {
  int n_multiprocessors = 0;
  int capability = 0;    // 90 for 9.0
  int shared_bytes = 0;  // that a block of threads may have
};
cudaError_t current_device(Device* device);

// The kernels of contract native: sums in any order, and no tile is special.
cudaError_t launch_free_gemv(const Problem& problem, const Device& device, cudaStream_t stream);
cudaError_t launch_free_gemm_mma(const Problem& problem, const Device& device, cudaStream_t stream);
cudaError_t launch_free_gemm_wgmma(const Problem& problem, const Device& device, cudaStream_t stream);

// out = q * weights^T for every row in groups of up to 16; with `only_exact`, for the tiles that need the exact route.
cudaError_t launch_gemv(const Problem& problem, const Device& device, bool only_exact, cudaStream_t stream);
// For two rows or more, which launch_gemv hands on.
cudaError_t launch_gemv_rows(const Problem& problem, const Device& device, bool only_exact, cudaStream_t stream);
// The same without the exact route: tiles that need it are left wrong.
cudaError_t launch_gemm_mma(const Problem& problem, const Device& device, cudaStream_t stream);
cudaError_t launch_gemm_wgmma(const Problem& problem, const Device& device, cudaStream_t stream);

}  // namespace nibble::kernels::cuda::nvfp4
