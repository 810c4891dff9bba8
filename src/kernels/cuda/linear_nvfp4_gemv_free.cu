// NVFP4 weights times up to 16 rows of f16 activations in contract `native`: what the gemv is without an order of sums.
//
// A thread block owns up to four tiles of 16 weight rows. K is divided among its warps as in the exact gemv: in a step
// a warp takes one pair of every tile, so that the products of the tiles overlap, and adds them in registers. The warps
// meet once, at the end of K. There is no chain, no buffer of sums and no exact route.
#include "kernels/cuda/linear_nvfp4_gemv_compute.cuh"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

constexpr int kThreads = kWarps * kWarp;
constexpr int kRowPieces = kNvfp4Pair / 8;  // 16-byte pieces of a row of activations in a pair

template <int kTokens, int kTiles>
struct FreeShape {
  static constexpr int kColumnTiles = kTokens == 16 ? 2 : 1;
  static constexpr int kSums = kTokens == 1 ? 2 : 4 * kColumnTiles;  // of a lane and tile
  static constexpr float kUnit = kTokens == 1 ? Shape::kSumUnit : kSumUnit;
  static constexpr int kTileSums = kTileRows * kTokens;  // [kTokens, kTileRows]
  // A step of a warp: a unit of each tile, and the activations that they meet, [kTokens, kRowPieces].
  static constexpr int kStepBytes = kTiles * kUnitBytes + kTokens * kRowPieces * 16;
  // So many on their way that a multiprocessor has room for two blocks of threads.
  static constexpr int kMostBytes = 104 << 10;
  static constexpr int kSteps = kMostBytes / (kWarps * kStepBytes) < 8 ? kMostBytes / (kWarps * kStepBytes) : 8;
  static constexpr int kRingBytes = kWarps * kSteps * kStepBytes;
  static_assert(kSteps >= 2 && kWarps * kTiles * kTileSums * sizeof(float) <= kRingBytes, "the sums follow the ring");
};

// Of a pair, in a lane: one piece of one row, or [column tile, block, half of a block].
template <int kTokens>
struct Activations {
  static constexpr int kPieces = kTokens == 1 ? 1 : kTokens / 2;
  uint4 pieces[kPieces];
};

// A tile of this thread block.
struct FreeTile {
  const std::uint8_t* units;
  int segment;
  int index;  // in the segment
};
__device__ inline FreeTile find_tile(const Problem& p, int index) {
  int s = 0;
  for (; index >= p.segments[s].n_tiles; ++s) index -= p.segments[s].n_tiles;
  return {p.segments[s].units + static_cast<std::size_t>(index) * p.n_pairs * kUnitBytes, s, index};
}

// Adds the products of a pair of one tile.
template <int kTokens, int kSums>
__device__ inline void add_pair(const Words& words, const Activations<kTokens>& x, const OneRow& one_row,
                                float (&sums)[kSums]) {
  if constexpr (kTokens == 1) {
    float d[2][4] = {};  // of a block each: two chains of products
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        u32 a[4];
        decode(words.w[block][step], a);
        add_products<true>(d[block], a, one_row.b[block][step][0], one_row.b[block][step][1]);
      }
    }
    const u32 s = words.scales.x;
    sums[0] = __fmaf_rn(d[0][0] + d[1][0], scale_f32<0>(s), __fmaf_rn(d[0][1] + d[1][1], scale_f32<1>(s), sums[0]));
    sums[1] = __fmaf_rn(d[0][2] + d[1][2], scale_f32<2>(s), __fmaf_rn(d[0][3] + d[1][3], scale_f32<3>(s), sums[1]));
  } else {
    constexpr int kColumnTiles = kSums / 4;
    auto& d = reinterpret_cast<float(&)[kColumnTiles][4]>(sums);
    multiply_block<kColumnTiles, true>(words.w[0], words.scales.x, words.scales.y, x.pieces, 0, d);
    multiply_block<kColumnTiles, true>(words.w[1], words.scales.z, words.scales.w, x.pieces, 1, d);
  }
}

// This warp's sums of a tile to shared memory, [kTokens, kTileRows].
template <int kTokens, int kSums>
__device__ inline void leave_sums(const float (&sums)[kSums], float* to, int lane) {
  const int row = tile_row(lane / 4), quad = lane % 4;
  if constexpr (kTokens == 1) {  // each lane of a row has two groups of eight
    float low = sums[0], high = sums[1];
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      low += __shfl_xor_sync(kAllLanes, low, apart);
      high += __shfl_xor_sync(kAllLanes, high, apart);
    }
    if (quad == 0) to[row] = low;
    if (quad == 0) to[row + kLaneRows] = high;
  } else {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int token = i / 4 * kColumns + quad * 2 + i % 2;
      to[token * kTileRows + row + i % 4 / 2 * kLaneRows] = sums[i];
    }
  }
}

template <int kTokens, int kTiles>
struct FreeWarp {
  using S = FreeShape<kTokens, kTiles>;
  const Problem& p;
  const FreeTile* tiles;  // kTiles; beyond the last one it again, computed and not written
  int warp, lane;
  u32 ring;     // of this warp
  int n_steps;  // pairs of this warp: warp, warp + kWarps, ...

  __device__ int pair(int step) const { return step * kWarps + warp; }
  __device__ u32 slot(int step) const { return ring + step % S::kSteps * S::kStepBytes; }

  __device__ void start_weights(int step) const {
    const bool wanted = step < n_steps;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const u64 from = reinterpret_cast<u64>(tiles[t].units) + static_cast<u32>(pair(step) * kUnitBytes + lane * 16);
      const u32 to = slot(step) + t * kUnitBytes + lane * 16;
      copy_16_if(wanted, to, from);
      copy_16_if(wanted, to + 512, from + 512);
      copy_16_if(wanted && lane < (kUnitBytes - 1024) / 16, to + 1024, from + 1024);
    }
  }
  // Piece i of a row lies at i ^ row % 2 * 4, so that eight lanes that load meet no bank twice.
  __device__ void start_activations(int step) const {
    const int first_row = blockIdx.y * kNvfp4GemvRows;
#pragma unroll
    for (int first = 0; first < kTokens * kRowPieces; first += kWarp) {
      const int row = (first + lane) / kRowPieces, piece = (first + lane) % kRowPieces;
      const std::size_t from_row = min(first_row + row, p.n_rows - 1);  // beyond the last one: computed, not written
      const __half* from = p.q + (from_row * p.n_pairs + pair(step)) * kNvfp4Pair + piece * 8;
      const u32 to = slot(step) + kTiles * kUnitBytes + (row * kRowPieces + (piece ^ row % 2 * 4)) * 16;
      copy_16_if(step < n_steps && row < kTokens, to, reinterpret_cast<u64>(from));
    }
  }
  __device__ Activations<kTokens> load_activations(int step) const {
    const u32 from = slot(step) + kTiles * kUnitBytes;
    const int m = lane / 4, quad = lane % 4;
    Activations<kTokens> x;
    if constexpr (kTokens == 1) {
      x.pieces[0] = load_shared16(from + (m / 2 * 4 + quad) * 16);
    } else {
#pragma unroll
      for (int i = 0; i < 4 * S::kColumnTiles; ++i) {
        x.pieces[i] =
            load_shared16(from + ((i / 4 * kColumns + m) * kRowPieces + ((i % 4 * 4 + quad) ^ m % 2 * 4)) * 16);
      }
    }
    return x;
  }

  __device__ void run(float (&sums)[kTiles][S::kSums]) const {
    for (int step = 0; step < S::kSteps; ++step) start_weights(step);
    wait_for_predecessors();
    for (int step = 0; step < S::kSteps; ++step) start_activations(step);
    commit_copies();
    wait_copies<0>();
    for (int step = 0; step < n_steps; ++step) {
      wait_copies<S::kSteps - 1>();
      __syncwarp();  // the copies of all lanes have landed
      Words words[kTiles];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) words[t] = load_words<kTokens == 1>(slot(step) + t * kUnitBytes, lane);
      const Activations<kTokens> x = load_activations(step);
      __syncwarp();  // they are read
      start_weights(step + S::kSteps);
      start_activations(step + S::kSteps);
      commit_copies();  // perhaps of nothing, so that groups can be counted
      OneRow one_row;
      if constexpr (kTokens == 1) one_row.set(x.pieces[0], lane / 4);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) add_pair<kTokens>(words[t], x, one_row, sums[t]);
    }
  }
};

template <int kTokens, int kTiles>
__device__ void write(const Problem& p, const FreeTile* tiles, int n_tiles, const float* sums) {
  using S = FreeShape<kTokens, kTiles>;
  const int first_row = blockIdx.y * kNvfp4GemvRows;
  for (int i = threadIdx.x; i < n_tiles * S::kTileSums; i += kThreads) {
    const FreeTile& tile = tiles[i / S::kTileSums];
    const Segment& segment = p.segments[tile.segment];
    const int row = tile.index * kTileRows + i % kTileRows, token = first_row + i % S::kTileSums / kTileRows;
    if (row >= segment.n_out || token >= p.n_rows) continue;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp * kTiles * S::kTileSums + i];
    const float value = sum * (segment.scale * S::kUnit);
    segment.out[static_cast<std::size_t>(token) * segment.out_stride + row] =
        segment.bias != nullptr ? value + segment.bias[row] : value;
  }
}

template <int kTokens, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) free_gemv_kernel(const __grid_constant__ Problem p, int tiles_of_all) {
  using S = FreeShape<kTokens, kTiles>;
  NIBBLE_DYNAMIC_SHARED(std::uint8_t, memory, 128);
  __shared__ FreeTile tiles[kTiles];
  const int thread = threadIdx.x, warp = thread / kWarp, lane = thread % kWarp;
  let_successors_start();
  const int first = blockIdx.x * kTiles, n_tiles = min(kTiles, tiles_of_all - first);
  if (thread < kTiles) tiles[thread] = find_tile(p, min(first + thread, tiles_of_all - 1));
  __syncthreads();

  float sums[kTiles][S::kSums] = {};
  const u32 ring = shared_address(memory) + warp * S::kSteps * S::kStepBytes;
  FreeWarp<kTokens, kTiles>{p, tiles, warp, lane, ring, (p.n_pairs - warp + kWarps - 1) / kWarps}.run(sums);
  __syncthreads();                                 // nobody reads the ring any more
  float* left = reinterpret_cast<float*>(memory);  // [kWarps, kTiles, kTokens, kTileRows]
#pragma unroll
  for (int t = 0; t < kTiles; ++t) leave_sums<kTokens>(sums[t], left + (warp * kTiles + t) * S::kTileSums, lane);
  __syncthreads();
  write<kTokens, kTiles>(p, tiles, n_tiles, left);
}

// A multiprocessor takes two blocks of threads at once: the busiest gets the fewest tiles, and of choices that tie on
// that a block gets as many as there are kernels for, if their ring fits.
template <int kTokens, int kTiles>
cudaError_t launch_of(const Problem& p, const Device& device, cudaStream_t stream) {
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  constexpr int kBytes = FreeShape<kTokens, kTiles>::kRingBytes;
  if constexpr (kTiles > 1) {
    const auto of_the_busiest = [&](int tiles) {
      const int blocks = (n_tiles + tiles - 1) / tiles, at_once = 2 * device.n_multiprocessors;
      return (blocks + at_once - 1) / at_once * tiles;
    };
    if (of_the_busiest(kTiles / 2) < of_the_busiest(kTiles) || kBytes > device.shared_bytes) {
      return launch_of<kTokens, kTiles / 2>(p, device, stream);
    }
  }
  LaunchShape shape;
  shape.grid = dim3((n_tiles + kTiles - 1) / kTiles, (p.n_rows + kNvfp4GemvRows - 1) / kNvfp4GemvRows);
  shape.block = kThreads;
  shape.shared_bytes = kBytes;
  shape.starts_early = true;
  return launch_kernel(free_gemv_kernel<kTokens, kTiles>, shape, stream, p, n_tiles);
}

}  // namespace

cudaError_t launch_free_gemv(const Problem& p, const Device& device, cudaStream_t stream) {
  if (p.n_rows == 1) return launch_of<1, 4>(p, device, stream);
  if (p.n_rows <= kColumns) return launch_of<8, 4>(p, device, stream);
  return launch_of<16, 2>(p, device, stream);
}

}  // namespace nibble::kernels::cuda::nvfp4
