// NVFP4 weights times many rows of activations, on Hopper's wgmma.
//
// A block of threads makes 128 tokens x 128 or 192 weight rows, and goes on to the next such tile. Tokens are the rows
// of the instruction, so that the factor c of a block is one number per thread and row. Two warpgroups produce: four
// warps decode weights to shared memory, one copies tokens, one packed weights. Two warpgroups consume.
#include <cuda.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/linear_nvfp4_gemm_sm90_consume.cuh"
#include "kernels/cuda/linear_nvfp4_gemm_sm90_produce.cuh"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

// Together the registers of the launch.
[[maybe_unused]] constexpr int kProducerRegisters = 40, kConsumerRegisters = 216;

template <typename Contract, int kTiles>
__global__ void __launch_bounds__(kGemmThreads, 1)
    gemm_wgmma_kernel(const __grid_constant__ Problem p, const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  NIBBLE_DYNAMIC_SHARED(std::uint8_t, memory, 1024);
  u32 base = shared_address(memory);
  keep(base);
  let_successors_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(NIBBLE_AT(base, full) + i * 8, 1 + kDecoders);
      barrier_init(NIBBLE_AT(base, empty) + i * 8, kConsumers * kWarpgroup / kWarp);
    }
    for (int i = 0; i < kRingPairs; ++i) {
      barrier_init(NIBBLE_AT(base, ring_full) + i * 8, 1);
      barrier_init(NIBBLE_AT(base, ring_empty) + i * 8, kDecoders);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const Schedule<kTiles, Contract::kPairs> schedule(p, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (warp < kProducers * kWarpgroup / kWarp) {
    lower_registers<kProducerRegisters>();
    if (warp < kDecoders) {
      Decoder<Contract, kTiles>{p, schedule, base, warp * (kTiles / kDecoders), lane}.run();
    } else if (warp == kTokenCopier) {
      TokenCopier<Contract, kTiles>{p, &map, schedule, base, lane}.run();
    } else if (warp == kWeightCopier) {
      WeightCopier<Contract, kTiles>{p, schedule, base, lane}.run();
    }
  } else {
    raise_registers<kConsumerRegisters>();
    // By a shuffle, so that the compiler knows that it is one number for the warp: addresses come out uniform.
    const int turn = __shfl_sync(kAllLanes, warp / (kWarpgroup / kWarp) - kProducers, 0);
    Consumer<Contract, kTiles>{p, schedule, base, turn, static_cast<int>(threadIdx.x) % kWarpgroup}.run();
  }
#else
  __trap();  // compiled for a GPU without wgmma: sm_90 instead of sm_90a, say
#endif
}

// The matrix of activations for TMA: rows of f16, boxes of one block by the tokens of a tile, zeros beyond the last
// row.
cudaError_t describe_tokens(const Problem& p, CUtensorMap* map) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) return error;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(p.n_pairs) * kNvfp4Pair, static_cast<cuuint64_t>(p.n_rows)};
  const cuuint64_t strides[1] = {extents[0] * sizeof(__half)};
  const cuuint32_t box[2] = {kBlock, kTokens}, steps[2] = {1, 1};
  const CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<__half*>(p.q), extents, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

bool can_share(const Device& device) {
  return device.n_multiprocessors * kConsumers * (kWarpgroup / kWarp) <= kNvfp4Handovers;
}

template <int kTiles>
int count_tiles(const Problem& p) {
  int groups = 0;
  for (int s = 0; s < p.n_segments; ++s) groups += (p.segments[s].n_tiles + kTiles - 1) / kTiles;
  return groups * ((p.n_rows + kTokens - 1) / kTokens);
}

template <typename Contract, int kTiles>
cudaError_t launch(Problem p, const Device& device, cudaStream_t stream) {
  if (!can_share(device)) p.handovers = nullptr;
  CUtensorMap map;
  const cudaError_t error = describe_tokens(p, &map);
  if (error != cudaSuccess) return error;
  LaunchShape shape;
  shape.grid = std::min(device.n_multiprocessors, count_tiles<kTiles>(p));
  shape.block = kGemmThreads;
  shape.shared_bytes = sizeof(GemmShared<kTiles>);
  shape.starts_early = true;
  return launch_kernel(gemm_wgmma_kernel<Contract, kTiles>, shape, stream, p, map);
}

}  // namespace

template <typename Contract>
cudaError_t launch_gemm_wgmma(const Problem& p, const Device& device, cudaStream_t stream) {
  // Wide tiles read less of the tokens per product; narrow ones may come out more even.
  constexpr int kNarrow = 8, kWide = 12;  // row tiles
  constexpr double kNarrowCost = 1.1;
  const auto tiles_of_a_block = [&](int n_tiles) {
    const double share = static_cast<double>(n_tiles) / device.n_multiprocessors;
    return p.handovers != nullptr && can_share(device) ? std::max(1.0, share) : std::ceil(share);
  };
  const bool narrow = tiles_of_a_block(count_tiles<kNarrow>(p)) * kNarrow * kNarrowCost <
                      tiles_of_a_block(count_tiles<kWide>(p)) * kWide;
  return narrow ? launch<Contract, kNarrow>(p, device, stream) : launch<Contract, kWide>(p, device, stream);
}
template cudaError_t launch_gemm_wgmma<Nc1>(const Problem&, const Device&, cudaStream_t);
template cudaError_t launch_gemm_wgmma<Nc1F16>(const Problem&, const Device&, cudaStream_t);
template cudaError_t launch_gemm_wgmma<Native>(const Problem&, const Device&, cudaStream_t);

}  // namespace nibble::kernels::cuda::nvfp4
