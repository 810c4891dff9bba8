#include "kernels/cuda/kv_cache.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/cuda/buffers.h"

namespace nibble::kernels::cuda {
namespace {

int whole_splits(int n_positions) {
  return (n_positions + kSplit - 1) / kSplit * kSplit;
}

struct Bytes {
  std::size_t keys, values, scales;
};
Bytes bytes_for(const KvShape& shape) {
  const std::size_t rows = std::size_t{1} * shape.n_layers * shape.n_kv_heads * whole_splits(shape.capacity);
  return {rows * padded_head(shape.head_dim) * sizeof(__half), rows * shape.head_dim, 2 * rows * sizeof(float)};
}

}  // namespace

CudaKvCache::CudaKvCache(const KvShape& kv_shape) : capacity_(whole_splits(kv_shape.capacity)) {
  NIBBLE_CHECK(kv_shape.n_layers > 0 && kv_shape.n_kv_heads > 0 && kv_shape.capacity > 0, "a cache has an extent");
  NIBBLE_CHECK(kv_shape.head_dim > 0 && kv_shape.head_dim % 8 == 0 && kv_shape.head_dim <= kMaxHeadDim,
               "heads of the cuda backend have 8, 16, 24, ... 256 dimensions");
  shape = kv_shape;
}

Status CudaKvCache::allocate(const Stream& stream) {
  const Bytes bytes = bytes_for(shape);
  const std::string what = fmt::format("a cache of {} positions", shape.capacity);
  NIBBLE_ASSIGN(keys_, make_zeros(bytes.keys, what, stream));
  NIBBLE_ASSIGN(values_, make_zeros(bytes.values, what, stream));
  NIBBLE_ASSIGN(scales_, make_zeros(bytes.scales, what, stream));
  return ok_status();
}

std::uint64_t CudaKvCache::bytes_of(const KvShape& shape) {
  const Bytes bytes = bytes_for(shape);
  return bytes.keys + bytes.values + bytes.scales;
}

DeviceRow CudaKvCache::device_row() const {
  return {keys_.as<__half>(), values_.as<std::int8_t>(), scales_.as<float>(), 0, capacity_};
}

}  // namespace nibble::kernels::cuda
