// NVFP4 weights times one row of activations: as fast as the weights arrive. (More rows: linear_nvfp4_gemv_rows.cu.)
//
// A thread block owns tiles of 16 weight rows. K is divided among its compute warps: in round r, warp w multiplies pair
// r * kWarps + w of every tile, so its activations stay in registers for a whole round and nobody shares them. A warp
// fills a ring of its own in shared memory by asynchronous copies, so that nothing but the chain joins the warps.
// Exact sums of blocks go through shared memory to two more warps, the chain, which run the fma per block in order.
//
// The eight columns of the matrix instruction are eight groups of a pair. Activations are masked so that column j sees
// group j alone, and each lane scales two groups of two rows: half of the instructions of folding the scales into the
// weights, which is what more rows do.
#include <algorithm>

#include "kernels/cuda/linear_nvfp4_gemv_chain.cuh"
#include "kernels/cuda/linear_nvfp4_gemv_compute.cuh"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

template <typename Contract>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerMultiprocessor)
    gemv_kernel(const __grid_constant__ Problem p, u32 ring_units, bool only_exact) {
  NIBBLE_DYNAMIC_SHARED(std::uint8_t, memory, 128);
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  keep(warp);
  keep(lane);
  let_successors_start();
  u32 base = shared_address(&shared);
  keep(base);
  if (threadIdx.x == 0) {
    shared.has_exact = 0;
    for (int i = 0; i < Shape::kSumBuffers; ++i) {
      barrier_init(base + offsetof(Shared, filled) + i * 8, kWarps);
      barrier_init(base + offsetof(Shared, drained) + i * 8, Shape::kChains);
    }
  }
  __syncthreads();
  const int n_tiles = list_tiles(p, only_exact, shared);
  __syncthreads();
  if (n_tiles == 0) return;
  if (warp >= kWarps) {
    Chain<Contract>{shared, p, n_tiles, static_cast<u32>(warp - kWarps), lane, base, ring_units}.run();
  } else {
    const Compute compute{shared, p, n_tiles, warp, lane, base, ring_units};
    if (!is_nc1_f16<Contract> && shared.has_exact != 0) {
      compute.run<true>();
    } else {
      compute.run<false>();
    }
  }
}

// A multiprocessor holds two blocks of threads. The second may prefetch for the launch to come, which pays where there
// is little work, or compute for this one, which pays where there is much of it.
int blocks_for(int n_tiles, int n_multiprocessors) {
  return n_tiles >= 10 * n_multiprocessors ? 2 * n_multiprocessors : n_multiprocessors;
}

}  // namespace

template <typename Contract>
cudaError_t launch_gemv_one(const Problem& p, const Device& device, bool only_exact, cudaStream_t stream) {
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  constexpr int kFixedBytes = sizeof(Shared), kRingBytes = kWarps * kUnitBytes;  // of one unit a warp
  const int ring_units = std::min(Shape::kRingUnits, (device.shared_bytes - kFixedBytes) / kRingBytes);
  const int blocks = blocks_for(n_tiles, device.n_multiprocessors);
  int bytes = kFixedBytes + ring_units * kRingBytes;
  if (p.is_spread && blocks == device.n_multiprocessors) bytes = std::max(bytes, device.shared_bytes / 2 + 1);
  LaunchShape shape;
  shape.grid = std::max(std::min(n_tiles, blocks), (n_tiles + kMaxTiles - 1) / kMaxTiles);
  shape.block = Shape::kThreads;
  shape.shared_bytes = bytes;
  shape.starts_early = true;
  return launch_kernel(gemv_kernel<Contract>, shape, stream, p, static_cast<u32>(ring_units), only_exact);
}
template cudaError_t launch_gemv_one<Nc1>(const Problem&, const Device&, bool, cudaStream_t);
template cudaError_t launch_gemv_one<Nc1F16>(const Problem&, const Device&, bool, cudaStream_t);

}  // namespace nibble::kernels::cuda::nvfp4
