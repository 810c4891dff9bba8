// NVFP4 weights from the order of the file to the order of the matrix unit, and the certificate of every block.
#include "format/nvfp4.h"
#include "kernels/cuda/linear_nvfp4_contracts.cuh"

namespace nibble::kernels::cuda {
namespace nvfp4 {
namespace {

constexpr int kThreads = 128;
constexpr int kLanesOfRow = 4;  // that share a row in the layout of m16n8k16
constexpr int kLaneCodes = 4;   // of each group of a row
constexpr int kGroups = kBlock / format::kNvfp4Group;
constexpr u32 kCertificateLimit = 1u << 24;

// What a lane holds of a row of a block: four codes of each group, signs of scales moved into them, and the scales.
struct LaneRow {
  u32 codes[kGroups];   // 16 bits
  u32 scales[kGroups];  // E4M3 without sign
};

__device__ LaneRow load_row(const Nvfp4PackArgs& a, int row, int first, int quad) {
  LaneRow r = {};
  if (row >= a.n_out) return r;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int k = first + g * format::kNvfp4Group;
    if (k >= a.n_in) break;
    const std::size_t group = (static_cast<std::size_t>(row) * a.n_in + k) / format::kNvfp4Group;
    const u32 scale = a.scales[group];
    const u32 codes = reinterpret_cast<const std::uint16_t*>(a.codes)[group * kLanesOfRow + quad];
    r.scales[g] = scale & 0x7Fu;
    if (r.scales[g] != 0) r.codes[g] = (scale & 0x80u) != 0 ? codes ^ 0x8888u : codes;  // zeros under a scale of zero
  }
  return r;
}

// The sum of |q9 * q1| of a row of a block or several, and the bits of all products; of a lane.
struct Products {
  u64 sum = 0, bits = 0;
};
__device__ void add_products_of(const LaneRow& r, Products& p) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const u64 q9 = format::e4m3_x512(r.scales[g]);
#pragma unroll
    for (int i = 0; i < kLaneCodes; ++i) {
      const u64 product = q9 * format::e2m1_x2(r.codes[g] >> (4 * i) & 7u);
      p.sum += product;
      p.bits |= product;
    }
  }
}
// The largest integer of the activations times that sum, in its own unit (section 4); the row's four lanes call
// together.
__device__ bool is_certified(Products p, u64 activation_max) {
#pragma unroll
  for (int apart = 1; apart < kLanesOfRow; apart *= 2) {
    p.sum += __shfl_xor_sync(kAllLanes, p.sum, apart);
    p.bits |= __shfl_xor_sync(kAllLanes, p.bits, apart);
  }
  return p.bits == 0 || (activation_max * p.sum) >> (__ffsll(static_cast<long long>(p.bits)) - 1) < kCertificateLimit;
}

// Whether f32 holds the sums that begin with this block, in both rows of a lane. `low` and `high` are of the block.
__device__ bool are_certified(const Nvfp4PackArgs& a, int row, int block, int quad, const LaneRow& low,
                              const LaneRow& high) {
  const bool is_super = a.sums == Nvfp4Sums::kSuperBlocks;
  if (is_super && block % Nc1F16::kBlocks != 0) return true;  // the warp of the first block sees to it
  Products of_low, of_high;
  add_products_of(low, of_low);
  add_products_of(high, of_high);
  if (is_super) {
    for (int i = 1; i < Nc1F16::kBlocks; ++i) {
      add_products_of(load_row(a, row, (block + i) * kBlock, quad), of_low);
      add_products_of(load_row(a, row + kLaneRows, (block + i) * kBlock, quad), of_high);
    }
  }
  const u64 largest = is_super ? Nc1F16::kActivationMax : Nc1::kActivationMax;
  const bool is_low = is_certified(of_low, largest), is_high = is_certified(of_high, largest);
  return is_low && is_high;
}

// A warp packs one block of one tile.
__global__ void __launch_bounds__(kThreads) pack_kernel(Nvfp4PackArgs a) {
  const Layout layout = layout_of(a.n_out, a.n_in);
  const int n_blocks = 2 * layout.n_pairs;
  const std::int64_t warp = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (warp >= static_cast<std::int64_t>(layout.n_tiles) * n_blocks) return;
  const int tile = static_cast<int>(warp / n_blocks), block = static_cast<int>(warp % n_blocks);
  const int lane = threadIdx.x % kWarp, m = lane / kLanesOfRow, quad = lane % kLanesOfRow;
  const int row = tile * kTileRows + tile_row(m);
  const LaneRow low = load_row(a, row, block * kBlock, quad), high = load_row(a, row + kLaneRows, block * kBlock, quad);

  const bool certified = are_certified(a, row, block, quad, low, high);
  if (__any_sync(kAllLanes, !certified || a.distrust) && lane == 0) a.packed[layout.exact_flags + tile] = 1;

  u32 words[4];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    words[step] = 0;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const LaneRow& source = r % 2 == 0 ? low : high;
      const int shift = 4 * (step % 2 * 2 + r / 2), even = step / 2 * 2;
      words[step] |=
          place_code(r, source.codes[even] >> shift & 15u) | place_code(r, source.codes[even + 1] >> shift & 15u) << 16;
    }
  }
  std::uint8_t* unit = a.packed + (static_cast<std::size_t>(tile) * layout.n_pairs + block / 2) * kUnitBytes;
  reinterpret_cast<uint4*>(unit + block % 2 * kBlockCodeBytes)[lane] =
      make_uint4(words[0], words[1], words[2], words[3]);
  if (quad < 2) {  // a word: two scales of the low row, two of the high one
    u32 scales = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales |= pack_scale(quad == 0 ? low.scales[i] : low.scales[2 + i]) << (8 * i);
      scales |= pack_scale(quad == 0 ? high.scales[i] : high.scales[2 + i]) << (16 + 8 * i);
    }
    reinterpret_cast<u32*>(unit + kUnitCodeBytes)[m * 4 + block % 2 * 2 + quad] = scales;
  }
}

// One warp writes down, in order, which tiles take the exact route.
__global__ void list_exact_tiles_kernel(std::uint8_t* packed, Layout layout) {
  const int lane = threadIdx.x;
  int count = 0;
  for (int first = 0; first < layout.n_tiles; first += kWarp) {
    const int tile = first + lane;
    const bool is_exact = tile < layout.n_tiles && packed[layout.exact_flags + tile] != 0;
    const u32 found = __ballot_sync(kAllLanes, is_exact);
    const int before = __popc(found & ((1u << lane) - 1));
    if (is_exact) reinterpret_cast<int*>(packed + layout.exact_list)[count + before] = tile;
    count += __popc(found);
  }
  if (lane == 0) *reinterpret_cast<int*>(packed + layout.exact_count) = count;
}

}  // namespace
}  // namespace nvfp4

std::size_t nvfp4_packed_bytes(int n_out, int n_in) {
  return nvfp4::layout_of(n_out, n_in).bytes;
}

cudaError_t pack_nvfp4(const Nvfp4PackArgs& a, cudaStream_t stream) {
  using namespace nvfp4;
  const Layout layout = layout_of(a.n_out, a.n_in);
  cudaError_t error = cudaMemsetAsync(a.packed + layout.exact_flags, 0, layout.n_tiles, stream);
  if (error != cudaSuccess) return error;
  constexpr int kWarps = kThreads / kWarp;
  const std::int64_t n_warps = static_cast<std::int64_t>(layout.n_tiles) * layout.n_pairs * 2;
  error = launch_kernel(pack_kernel, {static_cast<unsigned>((n_warps + kWarps - 1) / kWarps), kThreads}, stream, a);
  if (error != cudaSuccess) return error;
  return launch_kernel(list_exact_tiles_kernel, {1, kWarp}, stream, a.packed, layout);
}

cudaError_t finish_packing(const Nvfp4PackArgs& a, Nvfp4Weights* weights, cudaStream_t stream) {
  *weights = {a.packed, a.n_out, a.n_in, a.tensor_scale, 0};
  const cudaError_t error =
      cudaMemcpyAsync(&weights->n_exact_tiles, a.packed + nvfp4::layout_of(a.n_out, a.n_in).exact_count, sizeof(int),
                      cudaMemcpyDeviceToHost, stream);
  return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
}

}  // namespace nibble::kernels::cuda
