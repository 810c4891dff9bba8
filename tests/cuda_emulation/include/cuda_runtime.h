// Stand-in for CUDA's header.
#pragma once

#include <cuda_runtime_api.h>

#include <tuple>
#include <utility>

#include "tests/cuda_emulation/builtins.h"

// Every thread gets arguments of its own, as on a GPU.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  return nibble::cuda_emulation::launch(*config, reinterpret_cast<const void*>(kernel),
                                        [kernel, values] { std::apply(kernel, values); });
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  return nibble::cuda_emulation::set_attribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel*) {
  return cudaSuccess;
}
