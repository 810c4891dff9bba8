// How every kernel of this backend is started: one form, and one kind of error, which is returned.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace nibble::kernels::cuda {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // of dynamic shared memory, see NIBBLE_DYNAMIC_SHARED in ptx.cuh
  unsigned cluster = 1;          // thread blocks along x that form a cluster
  bool starts_early = false;     // the kernel waits for those ahead of it in the stream by itself, where GPUs can
};

// What sm_90 brought: clusters, and kernels that start early.
inline cudaError_t is_sm90_or_later(bool* is) {
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  *is = major >= 9;
  return error;
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                          Arguments&&... arguments) {
  if (shape.shared_bytes != 0) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  bool starts_early = false;
  if (shape.starts_early) {
    const cudaError_t error = is_sm90_or_later(&starts_early);
    if (error != cudaSuccess) return error;
  }
  if (starts_early) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace nibble::kernels::cuda
