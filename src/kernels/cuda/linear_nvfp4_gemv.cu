// NVFP4 weights times up to 16 rows of activations: as fast as the weights arrive.
//
// A thread block owns tiles of 16 weight rows. K is divided among its compute warps: in round r, warp w multiplies pair
// r * kWarps + w of every tile, so its activations stay in registers for a whole round and nobody shares them. A warp
// fills a ring of its own in shared memory by asynchronous copies, so that nothing but the chain joins the warps.
// Exact sums of blocks go through shared memory to one more warp, the chain, which runs the fma per block in order.
//
// One row: the eight columns of the matrix instruction are eight groups of a pair. Activations are masked so that
// column j sees group j alone, and each lane scales two groups of two rows: half of the instructions of folding the
// scales into the weights, which is what more rows do.
#include <algorithm>

#include "kernels/cuda/linear_nvfp4_gemv_chain.cuh"
#include "kernels/cuda/linear_nvfp4_gemv_compute.cuh"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

template <int kTokens>
__global__ void __launch_bounds__(Shape<kTokens>::kThreads, Shape<kTokens>::kBlocksPerMultiprocessor)
    gemv_kernel(const __grid_constant__ Problem p, u32 ring_units, bool only_exact) {
  NIBBLE_DYNAMIC_SHARED(std::uint8_t, memory, 128);
  Shared<kTokens>& shared = *reinterpret_cast<Shared<kTokens>*>(memory);
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  keep(warp);
  keep(lane);
  let_successors_start();
  u32 base = shared_address(&shared);
  keep(base);
  if (threadIdx.x == 0) {
    shared.has_exact = 0;
    for (int i = 0; i < Shape<kTokens>::kSumBuffers; ++i) {
      barrier_init(base + offsetof(Shared<kTokens>, filled) + i * 8, kWarps);
      barrier_init(base + offsetof(Shared<kTokens>, drained) + i * 8, Shape<kTokens>::kChains);
    }
  }
  __syncthreads();
  const int n_tiles = list_tiles(p, only_exact, shared);
  __syncthreads();
  if (n_tiles == 0) return;
  if (warp >= kWarps) {
    Chain<kTokens>{shared, p, n_tiles, static_cast<u32>(warp - kWarps), lane, base, ring_units}.run();
  } else {
    const Compute<kTokens> compute{shared, p, n_tiles, warp, lane, base, ring_units};
    if (shared.has_exact != 0) {
      compute.template run<true>();
    } else {
      compute.template run<false>();
    }
  }
}

// A multiprocessor holds two blocks of threads. The second may prefetch for the launch to come, which pays where there
// is little work, or compute for this one, which pays where there is much of it.
int blocks_for(int tokens, int n_tiles, int n_multiprocessors) {
  if (tokens == 16) return n_multiprocessors;  // there is room for one
  const bool is_much = tokens == 1 ? n_tiles >= 10 * n_multiprocessors : 2 * n_tiles >= 7 * n_multiprocessors;
  return is_much ? 2 * n_multiprocessors : n_multiprocessors;
}

template <int kTokens>
cudaError_t launch(const Problem& p, const Device& device, bool only_exact, cudaStream_t stream) {
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  constexpr int kFixedBytes = sizeof(Shared<kTokens>), kRingBytes = kWarps * kUnitBytes;  // of one unit a warp
  const int ring_units = std::min(Shape<kTokens>::kRingUnits, (device.shared_bytes - kFixedBytes) / kRingBytes);
  const int blocks = blocks_for(kTokens, n_tiles, device.n_multiprocessors);
  int bytes = kFixedBytes + ring_units * kRingBytes;
  if (p.is_spread && blocks == device.n_multiprocessors) bytes = std::max(bytes, device.shared_bytes / 2 + 1);
  const int grid = std::max(std::min(n_tiles, blocks), (n_tiles + kMaxTiles - 1) / kMaxTiles);
  LaunchShape shape;
  shape.grid = dim3(grid, (p.n_rows + kNvfp4GemvRows - 1) / kNvfp4GemvRows);
  shape.block = Shape<kTokens>::kThreads;
  shape.shared_bytes = bytes;
  shape.starts_early = true;
  return launch_kernel(gemv_kernel<kTokens>, shape, stream, p, static_cast<u32>(ring_units), only_exact);
}

}  // namespace

cudaError_t launch_gemv(const Problem& p, const Device& device, bool only_exact, cudaStream_t stream) {
  if (p.n_rows == 1) return launch<1>(p, device, only_exact, stream);
  if (p.n_rows <= kColumns) return launch<8>(p, device, only_exact, stream);
  return launch<16>(p, device, only_exact, stream);
}

}  // namespace nibble::kernels::cuda::nvfp4
