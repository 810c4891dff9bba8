// What happens to weights once, when they are loaded.
#include "kernels/cuda/device_math.cuh"

namespace nibble::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kQ8Block = 32;
constexpr int kQ8Bytes = 34;

int blocks_for(std::int64_t n) {
  return static_cast<int>((n + kThreads - 1) / kThreads);
}

__global__ void split_q8_kernel(SplitQ8Args a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t block = i / kQ8Block;
  if (block >= a.n_blocks) return;
  const std::uint8_t* source = a.blocks + block * kQ8Bytes;
  const int element = static_cast<int>(i % kQ8Block);
  a.codes[i] = static_cast<std::int8_t>(source[2 + element]);
  if (element != 0) return;
  const auto scale = static_cast<std::uint16_t>(source[0] | source[1] << 8);
  a.scales[block] = scale;
  if (format::is_nonfinite(format::f16_to_f32(scale))) *a.found_bad = 1;
}

// Section 4: the smallest exponent u >= -52 with rne(max / 2^u) <= 16383, for a finite max.
__device__ int unit_exponent(float max) {
  using namespace format::nc1;
  // 2^13 <= max / 2^u < 2^14 for normal numbers; a subnormal one lies below 2^-126 and has the smallest unit.
  int u = static_cast<int>(format::float_bits(max) >> 23) - 127 - 13;
  if (u < kRowUnitMin) return kRowUnitMin;
  return format::rne(max, format::pow2(-u)) > kRowMax ? u + 1 : u;
}

__global__ void row_units_kernel(RowUnitsArgs a) {
  const int n_blocks = padded_columns(a.rows.n_in) / kBlockColumns;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;  // a warp a block
  if (i >= static_cast<std::int64_t>(a.rows.n_out) * n_blocks) return;
  const std::int64_t row = i / n_blocks;
  const int lane = threadIdx.x % kWarp, first = static_cast<int>(i % n_blocks) * kBlockColumns;
  const auto* values = static_cast<const std::uint16_t*>(a.rows.values) + row * a.rows.stride;
  u32 largest = 0;  // magnitudes of both formats are ordered like their bits
  for (int k = first + lane; k < min(first + kBlockColumns, a.rows.n_in); k += kWarp) {
    largest = max(largest, values[k] & 0x7FFFu);
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  const float value = a.rows.format == RowFormat::kBF16 ? format::bf16_to_f32(largest) : format::f16_to_f32(largest);
  if (lane != 0) return;
  const bool bad = format::is_nonfinite(value);
  if (bad) *a.found_bad = 1;
  a.units[i] = static_cast<std::uint8_t>(127 + (bad ? 0 : unit_exponent(value)));
}

__global__ void check_finite_kernel(CheckFiniteArgs a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < a.n && format::is_nonfinite(a.values[i])) *a.found_bad = 1;
}

__global__ void probe_kernel() {}

}  // namespace

cudaError_t probe_kernel_image() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, probe_kernel);
}

cudaError_t launch(const SplitQ8Args& a, cudaStream_t stream) {
  return launch_kernel(split_q8_kernel, {blocks_for(a.n_blocks * kQ8Block), kThreads}, stream, a);
}

cudaError_t launch(const RowUnitsArgs& a, cudaStream_t stream) {
  const std::int64_t n_blocks = padded_columns(a.rows.n_in) / kBlockColumns;
  return launch_kernel(row_units_kernel, {blocks_for(a.rows.n_out * n_blocks * kWarp), kThreads}, stream, a);
}

cudaError_t launch(const CheckFiniteArgs& a, cudaStream_t stream) {
  return launch_kernel(check_finite_kernel, {blocks_for(a.n), kThreads}, stream, a);
}

}  // namespace nibble::kernels::cuda
