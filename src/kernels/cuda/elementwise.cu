// Look-ups, norms, gates and sums: one pass over memory each, quantization of the next layer's input included.
#include "kernels/cuda/device_math.cuh"

namespace nibble::kernels::cuda {
namespace {

using format::fma_rn;

constexpr int kThreads = 256;
constexpr int kNormThreads = 1024;
constexpr int kSharedRow = 11 * 1024;  // floats of a row for which shared memory need not ask for more than 48 KB

int blocks_for(std::int64_t n, int per_block) {
  return static_cast<int>((n + per_block - 1) / per_block);
}

dim3 quantize_grid(int n_rows, int dim) {
  return dim3(blocks_for(padded_columns(dim) / kBlockColumns, kThreads / kWarp), n_rows);
}

__device__ float element(const Rows& table, std::size_t row, int i) {
  const std::size_t at = row * table.stride + i;
  switch (table.format) {
    case RowFormat::kF32:
      return static_cast<const float*>(table.values)[at];
    case RowFormat::kF16:
      return format::f16_to_f32(static_cast<const std::uint16_t*>(table.values)[at]);
    case RowFormat::kBF16:
      return format::bf16_to_f32(static_cast<const std::uint16_t*>(table.values)[at]);
    case RowFormat::kQ8:
      break;
  }
  const float scale = format::f16_to_f32(table.scales[row * (table.n_in / 32) + i / 32]);
  return scale * static_cast<float>(static_cast<const std::int8_t*>(table.values)[at]);
}

__global__ void embed_kernel(EmbedArgs a) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const std::size_t row = blockIdx.y;
  if (i < a.table.n_in) a.out[row * a.table.n_in + i] = element(a.table, a.tokens[row], i);
}

// A warp takes one block of a row; value(i) is element i of the row.
template <typename Value>
__device__ void quantize_one_block(const Quantized& out, const Flags& flags, int row, int dim, int block,
                                   const Value& value) {
  const int n_blocks = padded_columns(dim) / kBlockColumns;
  const int i = block * kBlockColumns + first_element_of_lane();
  const float first = i < dim ? value(i) : 0.0f;
  const float second = i + 16 < dim ? value(i + 16) : 0.0f;
  const bool finite = quantize_block(first, second, out, row, n_blocks, block);
  if (!finite && threadIdx.x % kWarp == 0) raise_flag(flags, row);
}

// A thread block takes kThreads / kWarp blocks of a row: blockIdx.x, of row blockIdx.y.
template <typename Value>
__device__ void quantize_some_blocks(const Quantized& out, const Flags& flags, int dim, const Value& value) {
  const int block = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (block < padded_columns(dim) / kBlockColumns) quantize_one_block(out, flags, blockIdx.y, dim, block, value);
}

// One row by one thread block. The sum has 256 lanes, whoever runs them; the other threads help to read and to
// quantize.
__global__ void __launch_bounds__(kNormThreads) add_norm_kernel(AddNormArgs a) {
  extern __shared__ float row_shared[];  // [dim], of rows that fit
  const int row = blockIdx.x;
  const std::size_t at = static_cast<std::size_t>(row) * a.dim;
  float* x = a.dim <= kSharedRow ? row_shared : a.x + at;
  for (int i = threadIdx.x; i < a.dim; i += kNormThreads) {
    float value = a.x[at + i];
    if (a.y != nullptr) {
      value = value + a.y[at + i];
      a.x[at + i] = value;
    }
    x[i] = value;
  }
  __syncthreads();
  float lane_sum = 0.0f;
  if (threadIdx.x < format::nc1::kReduceLanes) {
#pragma unroll 8
    for (int i = threadIdx.x; i < a.dim; i += format::nc1::kReduceLanes) lane_sum = fma_rn(x[i], x[i], lane_sum);
  }
  const float sum = reduce_lanes(lane_sum);
  const float v = fma_rn(sum, format::div_rn(1.0f, static_cast<float>(a.dim)), a.eps);
  const float r = format::div_rn(1.0f, format::sqrt_rn(v));
  const auto normed = [&](int i) {
    const float value = (x[i] * r) * a.weight[i];
    if (a.normed != nullptr) a.normed[at + i] = value;
    return value;
  };
  if (a.quantized.q == nullptr) {
    for (int i = threadIdx.x; i < a.dim; i += kNormThreads) normed(i);
    return;
  }
  const int n_blocks = padded_columns(a.dim) / kBlockColumns;
  for (int block = threadIdx.x / kWarp; block < n_blocks; block += kNormThreads / kWarp) {
    quantize_one_block(a.quantized, a.flags, row, a.dim, block, normed);
  }
}

__global__ void __launch_bounds__(kThreads) quantize_kernel(QuantizeArgs a) {
  const float* x = a.x + static_cast<std::size_t>(blockIdx.y) * a.dim;
  quantize_some_blocks(a.quantized, a.flags, a.dim, [x](int i) { return x[i]; });
}

__global__ void __launch_bounds__(kThreads) silu_kernel(SiluArgs a) {
  const std::size_t at = static_cast<std::size_t>(blockIdx.y) * a.dim;
  quantize_some_blocks(a.quantized, a.flags, a.dim, [&](int i) {
    const float value = format::silu(a.gate[at + i]) * a.up[at + i];
    if (a.out != nullptr) a.out[at + i] = value;
    return value;
  });
}

__global__ void silu_only_kernel(SiluArgs a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t n = static_cast<std::int64_t>(a.n_rows) * a.dim;
  if (i < n) a.out[i] = format::silu(a.gate[i]) * a.up[i];
}

__global__ void add_kernel(AddArgs a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < a.n) a.x[i] = a.x[i] + a.y[i];
}

__global__ void add_rows_kernel(AddRowsArgs a) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const std::size_t source = static_cast<std::size_t>(a.indices[blockIdx.y]) * a.dim + i;
  if (i < a.dim) a.out[static_cast<std::size_t>(blockIdx.y) * a.dim + i] = a.x[source] + a.y[source];
}

}  // namespace

cudaError_t launch(const EmbedArgs& a, cudaStream_t stream) {
  embed_kernel<<<dim3(blocks_for(a.table.n_in, kThreads), a.n_rows), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

cudaError_t launch(const AddNormArgs& a, cudaStream_t stream) {
  const int floats = a.dim <= kSharedRow ? a.dim : 0;
  add_norm_kernel<<<a.n_rows, kNormThreads, floats* static_cast<int>(sizeof(float)), stream>>>(a);
  return cudaGetLastError();
}

cudaError_t launch(const QuantizeArgs& a, cudaStream_t stream) {
  quantize_kernel<<<quantize_grid(a.n_rows, a.dim), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

cudaError_t launch(const SiluArgs& a, cudaStream_t stream) {
  if (a.quantized.q != nullptr) {
    silu_kernel<<<quantize_grid(a.n_rows, a.dim), kThreads, 0, stream>>>(a);
  } else {
    silu_only_kernel<<<blocks_for(static_cast<std::int64_t>(a.n_rows) * a.dim, kThreads), kThreads, 0, stream>>>(a);
  }
  return cudaGetLastError();
}

cudaError_t launch(const AddArgs& a, cudaStream_t stream) {
  add_kernel<<<blocks_for(a.n, kThreads), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

cudaError_t launch(const AddRowsArgs& a, cudaStream_t stream) {
  add_rows_kernel<<<dim3(blocks_for(a.dim, kThreads), a.n_rows), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace nibble::kernels::cuda
