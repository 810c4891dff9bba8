// Look-ups, norms, gates and sums: one pass over memory each, quantization of the next layer's input included.
#include <algorithm>

#include "format/e4m3.h"
#include "kernels/cuda/device_math.cuh"

namespace nibble::kernels::cuda {
namespace {

using format::fma_rn;

constexpr int kThreads = 256;
constexpr int kNormThreads = 1024;
constexpr int kFewRows = 64;           // norms of so many share the GPU by clusters
constexpr int kMaxCluster = 8;         // thread blocks; every GPU that has clusters takes 8
constexpr int kSharedRow = 10 * 1024;  // floats of a row that shared memory and registers of a thread block hold

int blocks_for(std::int64_t n, int per_block) {
  return static_cast<int>((n + per_block - 1) / per_block);
}

dim3 quantize_grid(int n_rows, int dim) {
  return dim3(blocks_for(padded_columns(dim) / kBlockColumns, kThreads / kWarp), n_rows);
}

// As quant_row_to_f32 of tensor/quant_block.h has it: one rounding.
__device__ float quant_element(const Rows& table, std::size_t row, int i) {
  const QuantRows& q = table.quant;
  const std::size_t group = (row * table.n_in + i) / 16;
  const std::size_t unit = row * (table.n_in / (q.is_super ? 256 : 32)) + i / (q.is_super ? 256 : 32);
  const auto* codes = static_cast<const std::uint8_t*>(table.values);
  int code = 0;  // minus offset
  if (q.is_narrow) {
    const int byte = codes[group * 8 + i % 8];
    code = (i % 16 < 8 ? byte & 15 : byte >> 4) - static_cast<int>(q.offset);
  } else {
    code = static_cast<std::int8_t>(codes[group * 16 + i % 16]);
  }
  const float scale = format::f16_to_f32(q.d[unit]) * static_cast<float>(q.is_super ? q.scales[group] : 1);
  const float value = scale * static_cast<float>(code);
  if (q.m == nullptr) return value;
  return value - format::f16_to_f32(q.m[unit]) * static_cast<float>(q.is_super ? q.minimums[group] : -1);
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
    case RowFormat::kFp8: {
      const float scale = table.g[row * table.n_scales + i / table.scale_columns] * 512.0f;  // exact
      return format::e4m3_decode(static_cast<const std::uint8_t*>(table.values)[at]) * scale;
    }
    case RowFormat::kQuant:
      return quant_element(table, row, i);
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

// Elements of a row that a thread of a norm holds: of the blocks of its warp, those that it will quantize.
struct NormElements {
  static constexpr int kBlocks = (kSharedRow / kBlockColumns + kNormThreads / kWarp - 1) / (kNormThreads / kWarp);
  float x[kBlocks][2], weight[kBlocks][2];
};
__device__ inline int norm_element(int index) {
  return (threadIdx.x / kWarp + index * (kNormThreads / kWarp)) * kBlockColumns + first_element_of_lane();
}

// All loads of a row before the first use of one: the row is short, and waiting for memory is what a norm costs.
__device__ void load_norm_elements(const AddNormArgs& a, std::size_t at, NormElements& e) {
  float y[NormElements::kBlocks][2];
#pragma unroll
  for (int b = 0; b < NormElements::kBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = norm_element(b) + 16 * half;
      const bool is_inside = i < a.dim;
      e.x[b][half] = is_inside ? a.x[at + i] : 0.0f;
      y[b][half] = is_inside && a.y != nullptr ? a.y[at + i] : 0.0f;
      e.weight[b][half] = is_inside ? a.weight[i] : 0.0f;
    }
  }
  if (a.y == nullptr) return;
#pragma unroll
  for (int b = 0; b < NormElements::kBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      e.x[b][half] = e.x[b][half] + y[b][half];
      const int i = norm_element(b) + 16 * half;
      if (i < a.dim) a.x[at + i] = e.x[b][half];
    }
  }
}

// r of section 5 from the lane sums of the block's first 256 threads.
__device__ inline float norm_factor(const AddNormArgs& a, float lane_sum) {
  return reduce_lanes(lane_sum, [&a](float sum) {
    const float v = fma_rn(sum, format::div_rn(1.0f, static_cast<float>(a.dim)), a.eps);
    return format::div_rn(1.0f, format::sqrt_rn(v));
  });
}

// The sum of squares of a thread's lane, all loads of kAhead elements before the first use; x + y stays in `row`.
__device__ inline float sum_lane(const AddNormArgs& a, std::size_t at, float* row) {
  constexpr int kAhead = 16, kLanes = format::nc1::kReduceLanes;
  float sum = 0.0f;
  for (int first = threadIdx.x; first < a.dim; first += kAhead * kLanes) {
    float x[kAhead], y[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = first + j * kLanes;
      x[j] = i < a.dim ? a.x[at + i] : 0.0f;
      y[j] = i < a.dim && a.y != nullptr ? a.y[at + i] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = first + j * kLanes;
      if (i >= a.dim) break;
      const float value = a.y != nullptr ? x[j] + y[j] : x[j];
      row[i] = value;
      sum = fma_rn(value, value, sum);
    }
  }
  return sum;
}

// One row by a cluster: each thread block makes the whole sum, which is short, and a share of the outputs, where the
// instructions are. The barrier keeps x unwritten until all have read it.
__global__ void __launch_bounds__(kThreads) add_norm_cluster_kernel(AddNormArgs a) {
  __shared__ float row_shared[kSharedRow];
  wait_for_predecessors();
  const int row = blockIdx.y, n_blocks = padded_columns(a.dim) / kBlockColumns;
  const std::size_t at = static_cast<std::size_t>(row) * a.dim;
  const float lane_sum = sum_lane(a, at, row_shared);
  cluster_arrive();
  let_successors_start();
  const float r = norm_factor(a, lane_sum);
  cluster_wait();
  constexpr int kWarpsPerBlock = kThreads / kWarp;
  for (int block = blockIdx.x * kWarpsPerBlock + threadIdx.x / kWarp; block < n_blocks;
       block += gridDim.x * kWarpsPerBlock) {
    float normed[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = block * kBlockColumns + first_element_of_lane() + 16 * half;
      normed[half] = 0.0f;
      if (i >= a.dim) continue;
      normed[half] = (row_shared[i] * r) * a.weight[i];
      if (a.y != nullptr) a.x[at + i] = row_shared[i];
      if (a.normed != nullptr) a.normed[at + i] = normed[half];
    }
    if (a.quantized.q == nullptr) continue;
    const bool finite = quantize_block(normed[0], normed[1], a.quantized, row, n_blocks, block);
    if (!finite && threadIdx.x % kWarp == 0) raise_flag(a.flags, row);
  }
}

// One row by one thread block. The sum has 256 lanes, whoever brings the values; the other threads help to do that.
__global__ void __launch_bounds__(kNormThreads) add_norm_kernel(AddNormArgs a) {
  __shared__ float row_shared[kSharedRow];
  const int row = blockIdx.x, n_blocks = padded_columns(a.dim) / kBlockColumns;
  const std::size_t at = static_cast<std::size_t>(row) * a.dim;
  NormElements e;
  load_norm_elements(a, at, e);
#pragma unroll
  for (int b = 0; b < NormElements::kBlocks; ++b) {
    const int i = norm_element(b);
    if (i < a.dim) row_shared[i] = e.x[b][0];
    if (i + 16 < a.dim) row_shared[i + 16] = e.x[b][1];
  }
  __syncthreads();
  float lane_sum = 0.0f;
  if (threadIdx.x < format::nc1::kReduceLanes) {
#pragma unroll 8
    for (int i = threadIdx.x; i < a.dim; i += format::nc1::kReduceLanes) {
      lane_sum = fma_rn(row_shared[i], row_shared[i], lane_sum);
    }
  }
  const float r = norm_factor(a, lane_sum);
#pragma unroll
  for (int b = 0; b < NormElements::kBlocks; ++b) {
    const int i = norm_element(b), block = i / kBlockColumns;
    if (block >= n_blocks) break;
    const float first = (e.x[b][0] * r) * e.weight[b][0], second = (e.x[b][1] * r) * e.weight[b][1];
    if (a.normed != nullptr && i < a.dim) a.normed[at + i] = first;
    if (a.normed != nullptr && i + 16 < a.dim) a.normed[at + i + 16] = second;
    if (a.quantized.q == nullptr) continue;
    const bool finite =
        quantize_block(i < a.dim ? first : 0.0f, i + 16 < a.dim ? second : 0.0f, a.quantized, row, n_blocks, block);
    if (!finite && threadIdx.x % kWarp == 0) raise_flag(a.flags, row);
  }
}

// Rows that neither registers nor shared memory hold: the same, from memory each time.
__global__ void __launch_bounds__(kNormThreads) add_norm_long_kernel(AddNormArgs a) {
  const int row = blockIdx.x;
  const std::size_t at = static_cast<std::size_t>(row) * a.dim;
  float* x = a.x + at;
  if (a.y != nullptr) {
    for (int i = threadIdx.x; i < a.dim; i += kNormThreads) x[i] = x[i] + a.y[at + i];
  }
  __syncthreads();
  float lane_sum = 0.0f;
  if (threadIdx.x < format::nc1::kReduceLanes) {
    for (int i = threadIdx.x; i < a.dim; i += format::nc1::kReduceLanes) lane_sum = fma_rn(x[i], x[i], lane_sum);
  }
  const float r = norm_factor(a, lane_sum);
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

template <Gate kKind>
__device__ inline float gated(float gate, float up) {
  return (kKind == Gate::kGelu ? format::gelu_tanh(gate) : format::silu(gate)) * up;
}

template <Gate kKind>
__global__ void __launch_bounds__(kThreads) gate_kernel(GateArgs a) {
  wait_for_predecessors();
  let_successors_start();
  const std::size_t at = static_cast<std::size_t>(blockIdx.y) * a.dim;
  quantize_some_blocks(a.quantized, a.flags, a.dim, [&](int i) {
    const float value = gated<kKind>(a.gate[at + i], a.up[at + i]);
    if (a.out != nullptr) a.out[at + i] = value;
    return value;
  });
}

template <Gate kKind>
__global__ void gate_only_kernel(GateArgs a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t n = static_cast<std::int64_t>(a.n_rows) * a.dim;
  if (i < n) a.out[i] = gated<kKind>(a.gate[i], a.up[i]);
}

__global__ void scale_kernel(ScaleArgs a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < a.n) a.x[i] = a.x[i] * a.factor;
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
  return launch_kernel(embed_kernel, {dim3(blocks_for(a.table.n_in, kThreads), a.n_rows), kThreads}, stream, a);
}

namespace {

cudaError_t launch_cluster_norm(const AddNormArgs& a, cudaStream_t stream) {
  LaunchShape shape;
  shape.cluster = std::min(kMaxCluster, blocks_for(padded_columns(a.dim) / kBlockColumns, kThreads / kWarp));
  shape.grid = dim3(shape.cluster, a.n_rows);
  shape.block = kThreads;
  shape.starts_early = true;
  return launch_kernel(add_norm_cluster_kernel, shape, stream, a);
}

}  // namespace

cudaError_t launch(const AddNormArgs& a, cudaStream_t stream) {
  bool has_clusters = false;
  const cudaError_t error = is_sm90_or_later(&has_clusters);
  if (error != cudaSuccess) return error;
  if (a.dim > kSharedRow) return launch_kernel(add_norm_long_kernel, {a.n_rows, kNormThreads}, stream, a);
  if (has_clusters && a.n_rows <= kFewRows) return launch_cluster_norm(a, stream);
  return launch_kernel(add_norm_kernel, {a.n_rows, kNormThreads}, stream, a);
}

cudaError_t launch(const QuantizeArgs& a, cudaStream_t stream) {
  return launch_kernel(quantize_kernel, {quantize_grid(a.n_rows, a.dim), kThreads}, stream, a);
}

namespace {

template <Gate kKind>
cudaError_t launch_gate(const GateArgs& a, cudaStream_t stream) {
  if (a.quantized.q != nullptr) {
    LaunchShape shape = {quantize_grid(a.n_rows, a.dim), kThreads};
    shape.starts_early = true;
    return launch_kernel(gate_kernel<kKind>, shape, stream, a);
  }
  const int blocks = blocks_for(static_cast<std::int64_t>(a.n_rows) * a.dim, kThreads);
  return launch_kernel(gate_only_kernel<kKind>, {blocks, kThreads}, stream, a);
}

}  // namespace

cudaError_t launch(const GateArgs& a, cudaStream_t stream) {
  return a.kind == Gate::kGelu ? launch_gate<Gate::kGelu>(a, stream) : launch_gate<Gate::kSilu>(a, stream);
}

cudaError_t launch(const ScaleArgs& a, cudaStream_t stream) {
  return launch_kernel(scale_kernel, {blocks_for(a.n, kThreads), kThreads}, stream, a);
}

cudaError_t launch(const AddArgs& a, cudaStream_t stream) {
  return launch_kernel(add_kernel, {blocks_for(a.n, kThreads), kThreads}, stream, a);
}

cudaError_t launch(const AddRowsArgs& a, cudaStream_t stream) {
  return launch_kernel(add_rows_kernel, {dim3(blocks_for(a.dim, kThreads), a.n_rows), kThreads}, stream, a);
}

}  // namespace nibble::kernels::cuda
