// The loop of every linear layer whose blocks are exact integers (sections 4, 11 and 12): a warp makes one output of up
// to kTokens tokens. 4 lanes share a block of 64, 16 one of 256; the exact sums of some blocks wait in shared memory,
// each with the factor that it is worth, and one lane a token then runs the fma chain in order.
//
// A Format says what a lane's 16 elements of a row are (`Packed`), their dot products with 16 activations (`Sum`,
// kTerms of them: with codes, and with minimums where a type has those), how sums are worth in f32, and how many sums
// of its own a block has (kSums: 1, or 2 where its halves are scaled apart).
#pragma once

#include "kernels/cuda/device_math.cuh"

namespace nibble::kernels::cuda {

constexpr int kLaneElements = 16;
constexpr int kChainTerms = 64;  // of a kind, of which those of so many blocks wait in shared memory
constexpr int kWarpsPerThreadBlock = 4;

struct Term {
  float sum;
  float factor;
};

// 16 activations as pairs of int16.
struct Activations16 {
  int pairs[8];
};
__device__ inline Activations16 load_activations(const std::int16_t* q) {
  const int4 low = reinterpret_cast<const int4*>(q)[0], high = reinterpret_cast<const int4*>(q)[1];
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

// 16 signed bytes, in order, times activations.
__device__ inline int dot_bytes(const int (&bytes)[4], const Activations16& q) {
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = __dp2a_lo(q.pairs[2 * i], bytes[i], sum);
    sum = __dp2a_hi(q.pairs[2 * i + 1], bytes[i], sum);
  }
  return sum;
}

// What formats that meet a11 have in common.
struct A11Format {
  using Input = Quantized;
  using Activations = Activations16;
  static constexpr int kBlock = kBlockColumns;
  static constexpr int kSums = 1, kTerms = 1;
  __device__ static Activations activations(const Input& input, std::size_t at) {
    return load_activations(input.q + at);
  }
  __device__ static float finish(float acc) { return acc; }
};

template <typename Format, int kTokens>
__global__ void __launch_bounds__(kWarp* kWarpsPerThreadBlock)
    linear_kernel(Format format, typename Format::Input input, const float* bias, float* out, int n_rows) {
  constexpr int kSums = Format::kSums, kTerms = Format::kTerms, kChainBlocks = kChainTerms / kTerms;
  constexpr int kLanesPerBlock = Format::kBlock / kLaneElements, kLanesPerSum = kLanesPerBlock / kSums;
  __shared__ Term terms[kWarpsPerThreadBlock][kTokens][kChainBlocks * kSums * kTerms];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int row = blockIdx.x * kWarpsPerThreadBlock + warp;
  const int first_token = blockIdx.y * kTokens;
  const int n_tokens = min(kTokens, n_rows - first_token);
  if (row >= format.n_out()) return;  // a whole warp; there is no barrier of the thread block below
  const int n_blocks = (format.n_in() + Format::kBlock - 1) / Format::kBlock;
  const std::size_t stride = static_cast<std::size_t>(n_blocks) * Format::kBlock;

  float acc = 0.0f;  // of token `lane`
  for (int chain = 0; chain < n_blocks; chain += kChainBlocks) {
    const int chain_end = min(chain + kChainBlocks, n_blocks);
    for (int base = chain; base < chain_end; base += kWarp / kLanesPerBlock) {
      const int block = base + lane / kLanesPerBlock;
      const bool is_inside = block < chain_end;
      const int element = block * Format::kBlock + lane % kLanesPerBlock * kLaneElements;
      const typename Format::Packed packed = format.load(row, is_inside ? element : format.n_in());
      const int sum_index = block * kSums + lane % kLanesPerBlock / kLanesPerSum;
      const auto unit = is_inside ? format.unit(row, sum_index) : typename Format::Unit{};
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        if (t >= n_tokens) break;
        const std::size_t token = first_token + t;
        typename Format::Sum sums[kTerms] = {};
        if (is_inside) format.dot(packed, Format::activations(input, token * stride + element), sums);
#pragma unroll
        for (int k = 0; k < kTerms; ++k) {
#pragma unroll
          for (int apart = 1; apart < kLanesPerSum; apart *= 2) sums[k] += __shfl_xor_sync(kAllLanes, sums[k], apart);
        }
        if (!is_inside || lane % kLanesPerSum != 0) continue;
        Term* to = &terms[warp][t][(sum_index - chain * kSums) * kTerms];
#pragma unroll
        for (int k = 0; k < kTerms; ++k) to[k] = format.term(k, sums[k], unit, input.d[token * n_blocks + block]);
      }
    }
    __syncwarp();
    if (lane < n_tokens) {
      const int n_terms = min((chain_end - chain) * kSums, format.n_sums() - chain * kSums) * kTerms;
      for (int i = 0; i < n_terms; ++i)
        acc = format::fma_rn(terms[warp][lane][i].sum, terms[warp][lane][i].factor, acc);
    }
    __syncwarp();
  }
  if (lane < n_tokens) {
    const float y = Format::finish(acc);
    out[static_cast<std::size_t>(first_token + lane) * format.n_out() + row] = bias != nullptr ? y + bias[row] : y;
  }
}

template <typename Format>
cudaError_t launch_linear(const Format& format, const typename Format::Input& input, const float* bias, float* out,
                          int n_rows, cudaStream_t stream) {
  const auto run = [&](auto kernel, int tokens) {
    const dim3 grid((format.n_out() + kWarpsPerThreadBlock - 1) / kWarpsPerThreadBlock, (n_rows + tokens - 1) / tokens);
    return launch_kernel(kernel, {grid, kWarp * kWarpsPerThreadBlock}, stream, format, input, bias, out, n_rows);
  };
  if (n_rows == 1) return run(linear_kernel<Format, 1>, 1);
  if (n_rows <= 4) return run(linear_kernel<Format, 4>, 4);
  return run(linear_kernel<Format, 8>, 8);
}

}  // namespace nibble::kernels::cuda
