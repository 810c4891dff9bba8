// A launch of the NVFP4 kernels, checked and with addresses resolved: what the kernels receive.
#pragma once

#include "kernels/cuda/linear_nvfp4_contracts.cuh"

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
  float scale;  // Contract::scale_of: the tensor scale, or g of section 4
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

// out = q * weights^T for any number of rows. Tiles that need the exact route are left wrong; in contract native no
// tile is special.
template <typename Contract>
cudaError_t launch_gemm_mma(const Problem& problem, const Device& device, cudaStream_t stream);
template <typename Contract>
cudaError_t launch_gemm_wgmma(const Problem& problem, const Device& device, cudaStream_t stream);
cudaError_t launch_free_gemv(const Problem& problem, const Device& device, cudaStream_t stream);

// The same for groups of up to 16 rows, with the exact route where a tile needs it. With `only_exact`, for such tiles
// alone.
template <typename Contract>
cudaError_t launch_gemv_rows(const Problem& problem, const Device& device, bool only_exact, cudaStream_t stream);
// One row. In nc1-f16 no tile may need the exact route: its sums go over pairs of several warps.
template <typename Contract>
cudaError_t launch_gemv_one(const Problem& problem, const Device& device, bool only_exact, cudaStream_t stream);

}  // namespace nibble::kernels::cuda::nvfp4
