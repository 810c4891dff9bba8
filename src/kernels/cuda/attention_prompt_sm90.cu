// Attention of many rows of one sequence (section 7) on Hopper's wgmma, heads of 64 or 128: 128 queries that share a
// key-value head by a thread block, 64 by each of two warpgroups, beside a third that brings keys and values. What one
// has on the tensor core runs while the other weighs its scores.
//
// Both products are exact: scores as everywhere, in chunks of 64 with sums of their own; values in f16, since a sum
// over a split is below 2^24 (1,023 * 127 * 128). Weights go in as the f16 whose bits they are, u * 2^-24.

#include "kernels/cuda/attention_prompt_sm90.cuh"

namespace nibble::kernels::cuda {
namespace prompt_sm90 {
namespace {

using nvfp4::Wgmma;

// Together the registers of the launch.
[[maybe_unused]] constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

[[maybe_unused]] constexpr float kWeightUnit = 0x1p24f;  // takes that of the weights' f16 off a sum

// A warpgroup's 64 queries.
template <int kHeadDim>
struct Consumer {
  using Shared = PromptShared<kHeadDim>;
  static constexpr int kChunks = Shared::kChunks;
  static constexpr int kOutputs =
      kHeadDim / 2;  // of a thread: element 4j + i is row g + i / 2 * 8, dimension 8j + 2t + i % 2
  static constexpr int kBlocks = kHeadDim / kBlockColumns;
  const AttentionArgs& a;
  const PromptTile& tile;
  SplitLoop splits;
  Shared& s;
  u32 base;
  int group, thread;  // which of the two warpgroups; in it

  __device__ int lane() const { return thread % kWarp; }
  // The query of the tile that is this thread's row g or g + 8.
  __device__ int query_index(int half) const {
    return group * kGroupQueries + thread / kWarp * kQueries + lane() / 4 + 8 * half;
  }

  // Steps 1 and 2: the four threads of a row take a quarter of it each.
  __device__ void load_queries(PromptRows& rows) const {
    constexpr int kPart = kHeadDim / 4;
    const int t = lane() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Query which = tile.query(a, query_index(half));
      float x[kPart] = {};
      if (which.row >= 0) {
        const auto* source = reinterpret_cast<const float4*>(
            a.q + (static_cast<std::size_t>(which.row) * a.n_heads + which.head) * kHeadDim + t * kPart);
#pragma unroll
        for (int i = 0; i < kPart / 4; ++i) {
          const float4 four = source[i];
          x[4 * i] = four.x;
          x[4 * i + 1] = four.y;
          x[4 * i + 2] = four.z;
          x[4 * i + 3] = four.w;
        }
      }
      hadamard_of_lanes<4>(x);
      u32 bits = 0;
#pragma unroll
      for (int i = 0; i < kPart; ++i) bits = max(bits, format::abs_bits(x[i]));
      const Quantizer by = quantizer(max_of_row(bits), static_cast<float>(nc1::kQueryMax));
      if (by.is_nonfinite && t == 0) raise_flag(a.flags, which.row);
      rows.q_scale[half] = by.scale;
      rows.n_keys[half] = which.row >= 0 ? a.rows[which.row].pos + 1 : 0;
      const int row = query_index(half) % kGroupQueries;
#pragma unroll
      for (int i = 0; i < kPart; i += 8) {
        const int piece = (t * kPart + i) / 8;
        u32 words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          words[j] = pair_of_halves(quantize(x[i + 2 * j], by), quantize(x[i + 2 * j + 1], by));
        }
        store_shared16(NIBBLE_PROMPT_AT(base, queries) + (group * kChunks + piece / 8) * Shared::kQueryBytes +
                           piece_at(row, piece % 8),
                       words[0], words[1], words[2], words[3]);
      }
    }
    nvfp4::fence_async_proxy();
    nvfp4::named_sync(1 + group, kWarpgroup);
  }

  static __device__ u32 max_of_row(u32 bits) {
    bits = max(bits, __shfl_xor_sync(kAllLanes, bits, 1));
    return max(bits, __shfl_xor_sync(kAllLanes, bits, 2));
  }
  static __device__ u32 pair_of_halves(int first, int second) {
    const __half2 pair = __halves2half2(__int2half_rn(first), __int2half_rn(second));
    return *reinterpret_cast<const u32*>(&pair);
  }

  // Step 3 up to the f32 sum: exact chunks of 64, left to right.
  __device__ void score(int stage, float (&p)[kThreadScores]) const {
    const u64 queries =
        matrix_at(matrix_descriptor(NIBBLE_PROMPT_AT(base, queries)), group * kChunks * Shared::kQueryBytes);
    const u64 keys = matrix_at(matrix_descriptor(NIBBLE_PROMPT_AT(base, keys)), stage * kChunks * Shared::kKeyBytes);
    float second[kThreadScores];
    nvfp4::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) Wgmma<kSplit>::multiply(p, queries + step * 2, keys + step * 2, step > 0);
    if constexpr (kChunks == 2) {
      const u64 queries2 = matrix_at(queries, Shared::kQueryBytes), keys2 = matrix_at(keys, Shared::kKeyBytes);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        Wgmma<kSplit>::multiply(second, queries2 + step * 2, keys2 + step * 2, step > 0);
      }
    }
    nvfp4::wgmma_commit();
    nvfp4::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kThreadScores; ++i) {
      nvfp4::wgmma_keep(p[i]);
      if constexpr (kChunks == 2) nvfp4::wgmma_keep(second[i]);
    }
    if constexpr (kChunks == 2) {
#pragma unroll
      for (int i = 0; i < kThreadScores; ++i) p[i] = p[i] + second[i];
    }
  }

  // Step 4, the last rounding: a weight below 2^10 is the lower half of its float's bits.
  static __device__ void round_weights(const float (&p)[kThreadScores], const float (&inverse)[2],
                                       u32 (&u)[kSplit / 16][4]) {
#pragma unroll
    for (int tile = 0; tile < kScoreTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* w = p + 4 * tile + 2 * half;
        u[tile / 2][tile % 2 * 2 + half] =
            __byte_perm(format::float_bits(format::fma_rn(w[0], inverse[half], kIntegers)),
                        format::float_bits(format::fma_rn(w[1], inverse[half], kIntegers)), 0x5410);
      }
    }
  }

  __device__ void start_values(int stage, const u32 (&u)[kSplit / 16][4], float (&sums)[kOutputs]) const {
    const u64 values = matrix_at(matrix_descriptor(NIBBLE_PROMPT_AT(base, values)), stage * 2 * Shared::kValueBytes);
    nvfp4::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSplit / 16; ++step) {
      Wgmma<kHeadDim>::multiply(sums, u[step], matrix_at(values, step / 4 * Shared::kValueBytes) + step % 4 * 2,
                                step > 0);
    }
    nvfp4::wgmma_commit();
  }

  // Step 5.
  static __device__ void fold(const PromptRows& rows, const Factors (&by)[2], const float (&sums)[kOutputs],
                              float (&o)[kOutputs]) {
    if (is_plain_fold(rows, by)) {
      const float new_part[2] = {by[0].new_part * kWeightUnit, by[1].new_part * kWeightUnit};
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) o[i] = format::fma_rn(sums[i], new_part[i / 2 % 2], o[i]);
      return;
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const int half = i / 2 % 2;
      if (rows.sees(half)) o[i] = merge_output(o[i], sums[i] * kWeightUnit, by[half]);
    }
  }

  // Step 6: this thread has elements 2j and 2j + 1 of a row, dimensions 8j + 2t and the next.
  __device__ void finish(const PromptRows& rows, const float (&o)[kOutputs]) const {
    const int t = lane() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Query which = tile.query(a, query_index(half));
      const float norm = format::div_rn(format::div_rn(1.0f, static_cast<float>(kHeadDim)), rows.l[half]);
      float x[kHeadDim / 4];
#pragma unroll
      for (int i = 0; i < kHeadDim / 4; ++i) x[i] = o[i / 2 * 4 + 2 * half + i % 2] * norm;
      butterfly(x, 1);
      butterfly_of_lanes(x, 1);
      butterfly_of_lanes(x, 2);
#pragma unroll
      for (int stride = 2; stride < kHeadDim / 4; stride *= 2) butterfly(x, stride);
      if (which.row >= 0) {
        float* out = a.out + (static_cast<std::size_t>(which.row) * a.n_heads + which.head) * kHeadDim + 2 * t;
#pragma unroll
        for (int i = 0; i < kHeadDim / 4; i += 2) *reinterpret_cast<float2*>(out + i * 4) = {x[i], x[i + 1]};
      }
      if (a.quantized.q == nullptr) continue;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) quantize_block(x + block * kBlockColumns / 4, which, block);
    }
  }

  // a11 of a block of which four threads hold x, see device_math.cuh.
  __device__ void quantize_block(const float* x, const Query& which, int block) const {
    constexpr int kMine = kBlockColumns / 4;
    constexpr int kApart = 4;  // elements here that are 16 dimensions apart
    const int t = lane() % 4;
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < kMine; ++i) bits = max(bits, format::abs_bits(x[i]));
    bits = max_of_row(bits);
    if (which.row < 0) return;
    const BlockOutput to(a.quantized, bits, which.row, a.n_heads * kBlocks, which.head * kBlocks + block);
#pragma unroll
    for (int i = 0; i < kMine; i += 2) {
      const u32 pair = static_cast<std::uint16_t>(to.integer(x[i])) | static_cast<u32>(to.integer(x[i + 1])) << 16;
      *reinterpret_cast<u32*>(to.q + i * 4 + 2 * t) = pair;
      if ((i & kApart) != 0) continue;
      to.h[i / 8 * 16 + i / 2 % 2 * 8 + 2 * t] = to.halves(x[i], x[i + kApart]);
      to.h[i / 8 * 16 + i / 2 % 2 * 8 + 2 * t + 1] = to.halves(x[i + 1], x[i + 1 + kApart]);
    }
    if (t != 0) return;
    to.write_scale();
    if (!to.is_finite) raise_flag(a.input_flags, which.row);
  }

  __device__ void wait_and_score(int split, float (&p)[kThreadScores]) const {
    const int stage = split % kStages;
    barrier_wait(NIBBLE_PROMPT_AT(base, keys_full) + stage * 8, split / kStages % 2);
    score(stage, p);
    if (lane() == 0) barrier_arrive(NIBBLE_PROMPT_AT(base, keys_empty) + stage * 8);
  }

  __device__ void run() const {
    PromptRows rows;
    load_queries(rows);
    float o[kOutputs] = {}, p[kThreadScores];
    wait_and_score(0, p);
    for (int split = 0; split < splits.count; ++split) {
      const int stage = split % kStages, slot = split % kScaleSlots;
      float inverse[2];
      weigh_split(a, s.key_scales[slot], s.value_scales[slot], splits.first_key + split * kSplit, p, rows, inverse);
      u32 u[kSplit / 16][4];
      round_weights(p, inverse, u);
      float sums[kOutputs];
      barrier_wait(NIBBLE_PROMPT_AT(base, values_full) + stage * 8, split / kStages % 2);
      start_values(stage, u, sums);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (rows.is_nan[half]) raise_flag(a.flags, tile.query(a, query_index(half)).row);
      }
      Factors by[2];
      fold_totals(rows, by);
      nvfp4::wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) nvfp4::wgmma_keep(sums[i]);
      if (lane() == 0) barrier_arrive(NIBBLE_PROMPT_AT(base, values_empty) + stage * 8);
      fold(rows, by, sums, o);
      if (split + 1 < splits.count) wait_and_score(split + 1, p);
    }
    finish(rows, o);
  }
};

template <int kHeadDim>
__global__ void __launch_bounds__(kPromptThreads, 1)
    attention_prompt_sm90_kernel(const __grid_constant__ AttentionArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  NIBBLE_DYNAMIC_SHARED(std::uint8_t, memory, 1024);
  auto& s = *reinterpret_cast<PromptShared<kHeadDim>*>(memory);
  u32 base = shared_address(memory);
  keep(base);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(NIBBLE_PROMPT_AT(base, keys_full) + i * 8, kWarpgroup / kWarp);
      barrier_init(NIBBLE_PROMPT_AT(base, values_full) + i * 8, kWarpgroup / kWarp);
      barrier_init(NIBBLE_PROMPT_AT(base, keys_empty) + i * 8, kConsumers * kWarpgroup / kWarp);
      barrier_init(NIBBLE_PROMPT_AT(base, values_empty) + i * 8, kConsumers * kWarpgroup / kWarp);
    }
    nvfp4::fence_barrier_init();
  }
  __syncthreads();
  // The last rows see the most keys: they start first, of all heads.
  const int tile_index = static_cast<int>(gridDim.y - 1 - blockIdx.y);
  const PromptTile tile = {static_cast<int>(blockIdx.x), a.n_heads / a.n_kv_heads, tile_index * a.rows_per_tile};
  const int last_row = min(tile.first_row + a.rows_per_tile, a.n_rows) - 1;
  const int first_split = splits_of_row(a, tile.first_row).first;  // positions ascend
  const SplitLoop splits = {first_split * kSplit, a.rows[last_row].pos / kSplit + 1 - first_split};
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  // By a shuffle, so that the compiler knows that it is one number for the warp: addresses come out uniform.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (group == 0) {
    nvfp4::lower_registers<kProducerRegisters>();
    const CachePart cache = cache_of(a, tile.first_row, tile.kv_head);
    Producer<kHeadDim>{cache, splits, base, thread}.run();
  } else {
    nvfp4::raise_registers<kConsumerRegisters>();
    Consumer<kHeadDim>{a, tile, splits, s, base, group - 1, thread}.run();
  }
#else
  __trap();  // compiled for a GPU without wgmma: sm_90 instead of sm_90a, say
#endif
}

template <int kHeadDim>
cudaError_t launch_prompt(const AttentionArgs& a, cudaStream_t stream) {
  const dim3 grid(a.n_kv_heads, (a.n_rows + a.rows_per_tile - 1) / a.rows_per_tile);
  return launch_kernel(attention_prompt_sm90_kernel<kHeadDim>, {grid, kPromptThreads, sizeof(PromptShared<kHeadDim>)},
                       stream, a);
}

}  // namespace
}  // namespace prompt_sm90

int prompt_sm90_shared_bytes(int head_dim) {
  if (head_dim == 64) return sizeof(prompt_sm90::PromptShared<64>);
  return head_dim == 128 ? static_cast<int>(sizeof(prompt_sm90::PromptShared<128>)) : 0;
}

cudaError_t launch(const PromptSm90Args& args, cudaStream_t stream) {
  const AttentionArgs& a = args.attention;
  return a.head_dim == 64 ? prompt_sm90::launch_prompt<64>(a, stream) : prompt_sm90::launch_prompt<128>(a, stream);
}

}  // namespace nibble::kernels::cuda
