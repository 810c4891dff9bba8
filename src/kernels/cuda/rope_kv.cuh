// What a warp does to a head on its way into attention: rotation (section 8), and the cache (section 7, steps 1 and 2).
#pragma once

#include "kernels/cuda/device_math.cuh"

namespace nibble::kernels::cuda {

// One head by one warp, in place, in whichever memory.
__device__ inline void rotate(float* head, const float* cos_sin, int rotary_dim, bool interleaved) {
  const int n_pairs = rotary_dim / 2;
  for (int pair = threadIdx.x % kWarp; pair < n_pairs; pair += kWarp) {
    float* first = head + (interleaved ? 2 * pair : pair);
    float* second = first + (interleaved ? 1 : n_pairs);
    const float x = *first, y = *second, c = cos_sin[2 * pair], s = cos_sin[2 * pair + 1];
    *first = format::fma_rn(x, c, -(y * s));
    *second = format::fma_rn(x, s, y * c);
  }
}

// A vector of shared memory, rotated by the butterfly already, as integers into the cache, by one warp.
__device__ inline void write_head(const StoreKvArgs& a, const float* x, const Quantizer& by, int row, int head,
                                  bool is_value) {
  const int lane = threadIdx.x % kWarp;
  const DeviceRow slot = a.rows[row];
  const std::size_t layer_head = static_cast<std::size_t>(a.layer) * a.n_kv_heads + head;
  const std::size_t pos = slot.pos;
  if (is_value) {
    std::int8_t* values = slot.values + layer_head * slot.capacity * a.head_dim + pos / 4 * 4 * a.head_dim + pos % 4;
    for (int i = lane; i < a.head_dim; i += kWarp) values[4 * i] = static_cast<std::int8_t>(quantize(x[i], by));
  } else {
    const int width = padded_head(a.head_dim);
    __half* key = slot.keys + (layer_head * slot.capacity + pos) * width;
    for (int i = lane; i < width; i += kWarp) key[i] = __int2half_rn(i < a.head_dim ? quantize(x[i], by) : 0);
  }
  if (lane == 0) {
    slot.scales[(2 * layer_head + (is_value ? 1 : 0)) * slot.capacity + pos] = by.scale;
    if (by.is_nonfinite) raise_flag(a.flags, row);
  }
}

// The butterfly over a head on its way into the cache, and what its integers are worth.
__device__ inline Quantizer prepare_head(const StoreKvArgs& a, float* x, bool is_value) {
  hadamard(x, a.head_dim, hadamard_size(a.head_dim));
  return quantizer_of(x, a.head_dim, is_value ? format::nc1::kValueMax : format::nc1::kKeyMax);
}

}  // namespace nibble::kernels::cuda
