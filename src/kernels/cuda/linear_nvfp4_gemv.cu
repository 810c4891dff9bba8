// NVFP4 weights times up to 16 rows of activations: as fast as the weights arrive.
//
// A thread block owns tiles of 16 weight rows. K is divided among its compute warps: in round r, warp w multiplies pair
// r * kWarps + w of every tile, so its activations stay in registers for a whole round. The pairs of a round of one
// tile lie together in memory: one asynchronous copy brings them to a stage of a ring in shared memory. A warp reads
// its unit, multiplies, and writes the exact sums of both blocks over the unit. When all warps have, a warp of the
// chain runs the fma per block in order, and the copier fills the stage again. Three barriers a stage are all that
// joins the warps: `loaded` when the copy is there, `summed` when the sums are, `drained` when the chain has read them.
//
// One row: the eight columns of the matrix instruction are eight groups of a pair. Activations are masked so that
// column j sees group j alone, and each lane scales two groups of two rows: half of the instructions of folding the
// scales into the weights, which is what more rows do.
#include <algorithm>

#include "kernels/cuda/linear_nvfp4_gemv_chain.cuh"
#include "kernels/cuda/linear_nvfp4_gemv_compute.cuh"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

template <int kTokens, int kWarps>
__global__ void __launch_bounds__(Shape<kTokens, kWarps>::kThreads, Shape<kTokens, kWarps>::kBlocksPerMultiprocessor)
    gemv_kernel(const __grid_constant__ Problem p, u32 stages, bool only_exact) {
  using S = Shape<kTokens, kWarps>;
  using M = Shared<kTokens, kWarps>;
  extern __shared__ __align__(128) std::uint8_t memory[];
  M& shared = *reinterpret_cast<M*>(memory);
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  keep(warp);
  keep(lane);
  let_successors_start();
  u32 base = shared_address(&shared);
  keep(base);
  if (threadIdx.x < stages) {
#if __CUDA_ARCH__ >= 900
    constexpr int kLoaders = 1;
#else
    constexpr int kLoaders = kWarp;
#endif
    barrier_init(base + offsetof(M, loaded) + threadIdx.x * 8, kLoaders);
    barrier_init(base + offsetof(M, summed) + threadIdx.x * 8, kWarps);
    barrier_init(base + offsetof(M, drained) + threadIdx.x * 8, 1);
  }
  bool has_exact;
  const int n_tiles = list_tiles(p, only_exact, shared, &has_exact);
  has_exact = __syncthreads_or(has_exact);
  if (n_tiles == 0) return;
  if (warp == kWarps + S::kChains) {
    Copier<kTokens, kWarps>{shared, p, n_tiles, lane, base, stages}.run();
  } else if (warp >= kWarps) {
    Chain<kTokens, kWarps>{shared, p, n_tiles, static_cast<u32>(warp - kWarps), lane, base, stages}.run();
  } else {
    const Compute<kTokens, kWarps> compute{shared, p, n_tiles, warp, lane, base, stages};
    if (has_exact) {
      compute.template run<true>();
    } else {
      compute.template run<false>();
    }
  }
}

template <int kTokens, int kWarps>
constexpr int kFixedBytes = sizeof(Shared<kTokens, kWarps>);

// Stages of the ring that a GPU has room for.
template <int kTokens, int kWarps>
int stages_on(const Device& device) {
  using S = Shape<kTokens, kWarps>;
  constexpr int kReserved = 1024;  // for each block of threads
  const int room =
      std::min(device.shared_bytes, device.multiprocessor_shared_bytes / S::kBlocksPerMultiprocessor - kReserved);
  return std::min(kMaxStages, (room - kFixedBytes<kTokens, kWarps>) / S::kStageBytes);
}

template <int kTokens, int kWarps>
cudaError_t launch(const Problem& p, const Device& device, int blocks_per_multiprocessor, bool only_exact,
                   cudaStream_t stream) {
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  const int stages = stages_on<kTokens, kWarps>(device);
  if (stages < Shape<kTokens, kWarps>::kMinStages) return cudaErrorInvalidConfiguration;
  const int bytes = kFixedBytes<kTokens, kWarps> + stages * Shape<kTokens, kWarps>::kStageBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(gemv_kernel<kTokens, kWarps>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  // Passes over the weights for groups of rows run side by side, so that memory is read once.
  constexpr int kPassRows = Shape<kTokens, kWarps>::kPassRows;
  const int passes = (p.n_rows + kPassRows - 1) / kPassRows;
  const int blocks = std::max(1, blocks_per_multiprocessor * device.n_multiprocessors / passes);
  const int grid = std::max(std::min(n_tiles, blocks), (n_tiles + kMaxTiles - 1) / kMaxTiles);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid, passes);
  config.blockDim = Shape<kTokens, kWarps>::kThreads;
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = device.capability >= 90 ? 1 : 0;
  return cudaLaunchKernelEx(&config, gemv_kernel<kTokens, kWarps>, p, static_cast<u32>(stages), only_exact);
}

}  // namespace

// Sixteen warps halve the rounds, which pays where K is long; eight let the next launch prefetch, or where there are
// many tiles a second block of threads compute. By measurement, docs/performance.md.
cudaError_t launch_gemv(const Problem& p, const Device& device, bool only_exact, cudaStream_t stream) {
  constexpr int kLongPairs = 112;
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  const bool has_room = device.shared_bytes >= 200 * 1024;
  if (p.n_rows == 1) {
    if (has_room && p.n_pairs >= kLongPairs) return launch<1, 16>(p, device, 1, only_exact, stream);
    return launch<1, 8>(p, device, n_tiles >= 10 * device.n_multiprocessors ? 2 : 1, only_exact, stream);
  }
  if (p.n_rows > kColumns && stages_on<16, 8>(device) >= Shape<16, 8>::kMinStages) {
    return launch<16, 8>(p, device, 1, only_exact, stream);
  }
  const bool is_much = n_tiles * p.n_pairs >= 800 * device.n_multiprocessors;
  if (has_room && is_much) return launch<8, 16>(p, device, 1, only_exact, stream);
  return launch<8, 8>(p, device, 1, only_exact, stream);
}

}  // namespace nibble::kernels::cuda::nvfp4
