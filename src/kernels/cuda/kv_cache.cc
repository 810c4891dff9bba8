#include "kernels/cuda/kv_cache.h"

#include <fmt/format.h>

#include "base/check.h"

namespace nibble::kernels::cuda {
namespace {

DeviceMemory zeros(std::size_t bytes, const KvShape& shape, const Stream& stream) {
  DeviceMemory memory = must_allocate(bytes, fmt::format("a cache of {} positions", shape.capacity));
  must(cudaMemsetAsync(memory.as<void>(), 0, bytes, stream.get()), "cudaMemsetAsync");
  return memory;
}

}  // namespace

CudaKvCache::CudaKvCache(const KvShape& kv_shape, const Stream& stream) {
  NIBBLE_CHECK(kv_shape.n_layers > 0 && kv_shape.n_kv_heads > 0 && kv_shape.capacity > 0, "a cache has an extent");
  NIBBLE_CHECK(kv_shape.head_dim > 0 && kv_shape.head_dim % 8 == 0 && kv_shape.head_dim <= kMaxHeadDim,
               "heads of the cuda backend have 8, 16, 24, ... 256 dimensions");
  shape = kv_shape;
  capacity_ = (shape.capacity + kSplit - 1) / kSplit * kSplit;
  const std::size_t rows = static_cast<std::size_t>(shape.n_layers) * shape.n_kv_heads * capacity_;
  keys_ = zeros(rows * padded_head(shape.head_dim) * sizeof(__half), shape, stream);
  values_ = zeros(rows * shape.head_dim, shape, stream);
  scales_ = zeros(2 * rows * sizeof(float), shape, stream);
}

DeviceRow CudaKvCache::device_row() const {
  return {keys_.as<__half>(), values_.as<std::int8_t>(), scales_.as<float>(), 0, capacity_};
}

}  // namespace nibble::kernels::cuda
