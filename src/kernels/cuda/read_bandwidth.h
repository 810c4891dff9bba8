// The limit beside which the bytes of weights are measured.
#pragma once

#include <cuda_runtime_api.h>

namespace nibble::kernels::cuda {

// GB/s at which this GPU reads memory that no cache holds: the best of several passes over 4 GB.
cudaError_t measure_read_bandwidth(double* gb_per_s);

}  // namespace nibble::kernels::cuda
