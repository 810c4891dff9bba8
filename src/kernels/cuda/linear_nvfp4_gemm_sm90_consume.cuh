// The consumers of the wgmma gemm. Two warpgroups, 64 tokens each, sum a block of 64 from zero on the tensor core, then
// run one fma per output while the tensor core works for the other. They take strict turns; left alone they fall into
// step and the tensor core waits. Where sums go over several blocks nobody waits for a turn: products of the next block
// are queued before those of the last are done.
#pragma once

#include <type_traits>

#include "kernels/cuda/linear_nvfp4_gemm_sm90_shape.cuh"

namespace nibble::kernels::cuda::nvfp4 {

constexpr int kTurnBarrier = 1;  // named barriers of the consumers' turns: this one and the next
constexpr int kStepsAlone = 3;   // of a block's four products: then it is the other warpgroup's turn

template <typename Contract, int kTiles>
struct Consumer {
  static constexpr bool kFree = Contract::kFree;
  static constexpr bool kTakesTurns = Contract::kBlocks == 1 && !kFree;
  static constexpr int kColumns = kTiles * kTileRows;
  static constexpr int kValues = kColumns / 2;  // of a thread
  static constexpr int kTurnThreads = kConsumers * kWarpgroup;
  const Problem& p;
  const Schedule<kTiles, Contract::kPairs>& schedule;
  u32 base;
  int turn, thread;  // which of the two warpgroups; in it

  // acc = fma(f32(S), c, acc): this thread has two tokens.
  static __device__ void promote(float (&sums)[kValues], float c0, float c1, float (&acc)[kValues]) {
    constexpr float kLargest = 0x1p110f;
    if (c0 < kLargest && c1 < kLargest) {
      c0 *= kSumUnit;
      c1 *= kSumUnit;
    } else {  // factors too large to take up the unit of the sums: the sums take it
#pragma unroll
      for (int i = 0; i < kValues; ++i) sums[i] *= kSumUnit;
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) acc[i] = __fmaf_rn(sums[i], i % 4 < 2 ? c0 : c1, acc[i]);
  }

  // The same for a super-block of nc1-f16.
  static __device__ void promote_super_block(const float (&sums)[kValues], float d0, float d1, float tensor_scale,
                                             float (&acc)[kValues]) {
    const float c0 = Nc1F16::factor(d0, kSumUnit), c1 = Nc1F16::factor(d1, kSumUnit);
#pragma unroll
    for (int i = 0; i < kValues; ++i) acc[i] = Nc1F16::add(acc[i], sums[i], i % 4 < 2 ? c0 : c1, tensor_scale);
  }

  // --- outputs: of each of its two tokens a thread has four neighbouring rows of every row tile ---

  struct Outputs {
    const Segment& segment;
    int first_row, first_token;
    bool is_even;  // all rows are there, in pieces of 16 bytes
  };
  __device__ Outputs outputs_of(const Piece& piece) const {
    const Segment& segment = p.segments[piece.segment];
    return {segment, piece.first_tile * kTileRows + thread % 4 * 4,
            piece.first_token + turn * 64 + thread / 32 * 16 + thread % 32 / 4,
            piece.first_tile * kTileRows + kColumns <= segment.n_out && segment.out_stride % 4 == 0 &&
                reinterpret_cast<u64>(segment.out) % 16 == 0};
  }
  static __device__ float* row_of(const Outputs& to, int half) {
    return to.segment.out + static_cast<std::size_t>(to.first_token + half * 8) * to.segment.out_stride + to.first_row;
  }
  static __device__ float4 values_of(const float (&acc)[kValues], int j, int half) {
    return make_float4(acc[j * 8 + half * 2], acc[j * 8 + half * 2 + 1], acc[j * 8 + 4 + half * 2],
                       acc[j * 8 + 5 + half * 2]);
  }
  __device__ void write(const Outputs& to, const float* bias, const float (&acc)[kValues]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (to.first_token + half * 8 >= p.n_rows) continue;
      float* out = row_of(to, half);
      if (to.is_even && bias == nullptr) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) *reinterpret_cast<float4*>(out + j * kTileRows) = values_of(acc, j, half);
      } else {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          write_some(to.segment.n_out, bias, to.first_row + j * kTileRows, out + j * kTileRows,
                     values_of(acc, j, half));
        }
      }
    }
  }
  static __device__ __attribute__((noinline)) void write_some(int n_out, const float* bias, int row, float* out,
                                                              float4 values) {
    const float v[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i < n_out) out[i] = bias != nullptr ? v[i] + bias[row + i] : v[i];
    }
  }
  // What `write` wrote without a bias in another thread block, so past this multiprocessor's own cache.
  __device__ void read(const Outputs& from, float (&acc)[kValues]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (from.first_token + half * 8 >= p.n_rows) continue;
      const float* out = row_of(from, half);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const float4 v = from.is_even
                             ? __ldcg(reinterpret_cast<const float4*>(out + j * kTileRows))
                             : read_some(from.segment.n_out, from.first_row + j * kTileRows, out + j * kTileRows);
        acc[j * 8 + half * 2] = v.x;
        acc[j * 8 + half * 2 + 1] = v.y;
        acc[j * 8 + 4 + half * 2] = v.z;
        acc[j * 8 + 5 + half * 2] = v.w;
      }
    }
  }
  static __device__ __attribute__((noinline)) float4 read_some(int n_out, int row, const float* out) {
    return make_float4(row < n_out ? __ldcg(out) : 0, row + 1 < n_out ? __ldcg(out + 1) : 0,
                       row + 2 < n_out ? __ldcg(out + 2) : 0, row + 3 < n_out ? __ldcg(out + 3) : 0);
  }

  // The flag by which this warp of thread block `block` says that the sums of its head are written.
  __device__ u32* handover(int block) const {
    return p.handovers + (block * kConsumers + turn) * (kWarpgroup / kWarp) + thread / kWarp;
  }
  __device__ void take_over(const Outputs& from, float (&acc)[kValues]) const {
    u32* flag = handover(static_cast<int>(blockIdx.x) - 1);
    if (thread % kWarp == 0) {
      wait_until_published(flag);
      *flag = 0;  // for the next launch
    }
    __syncwarp();
    __threadfence();
    read(from, acc);
  }
  __device__ void hand_over(const Outputs& to, const float (&acc)[kValues]) const {
    write(to, nullptr, acc);
    __threadfence();  // every lane its own: nothing rests on what one lane's release says of the others
    __syncwarp();
    if (thread % kWarp == 0) publish(handover(static_cast<int>(blockIdx.x)));
  }

  // Of the block to come: that it has arrived, and the factors of this thread's tokens.
  struct Block {
    Turn<kStages> stage;
    float d0, d1;
  };
  __device__ void wait_for(Block& block) const {
    const u32 token = turn * 64 + thread / kWarp * 16 + thread % kWarp / 4;  // of the tile
    const u32 d = NIBBLE_AT(base, d) + block.stage.index * kFactorBytes + token * 4;
    barrier_wait(NIBBLE_AT(base, full) + block.stage.index * 8, block.stage.parity);
    if constexpr (kFree) return;
    block.d0 = __uint_as_float(load_shared4(d));
    block.d1 = __uint_as_float(load_shared4(d + 32));
  }

  // Sums a block when it is this warpgroup's turn, and looks after the next one meanwhile.
  __device__ void sum_block(Block& block, u64 tokens, u64 weights, float g, float (&acc)[kValues]) const {
    const u32 stage = block.stage.index;
    const u64 a = matrix_at(tokens, stage * kTokenBytes);
    const u64 b = matrix_at(weights, stage * GemmShared<kTiles>::kWeightBytes);
    const float c0 = block.d0 * g, c1 = block.d1 * g;
    float sums[kValues];
    named_sync(kTurnBarrier + turn, kTurnThreads);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Wgmma<kColumns>::multiply(sums, a + step * 2, b + step * 2, step > 0);
      if (step == kStepsAlone - 1 || step == 3) wgmma_commit();
    }
    // The other warpgroup may queue its own before these are done: the tensor core never runs dry.
    wgmma_wait<1>();
    named_arrive(kTurnBarrier + 1 - turn, kTurnThreads);
    block.stage.next();
    wait_for(block);
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kValues; ++i) wgmma_keep(sums[i]);
    let_go(stage);
    promote(sums, c0, c1, acc);
  }

  // Adds a block to sums that go over several, and lets go of the block before. Between the first block and the wait
  // for the last nothing else may touch the sums, or the compiler waits for every product.
  using Product = std::conditional_t<kFree, RoundingWgmma<kColumns>, Wgmma<kColumns>>;
  __device__ void add_block(Block& block, u64 tokens, u64 weights, bool is_first, float (&sums)[kValues]) const {
    const u32 stage = block.stage.index;
    const u64 a = matrix_at(tokens, stage * kTokenBytes);
    const u64 b = matrix_at(weights, stage * GemmShared<kTiles>::kWeightBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Product::multiply(sums, a + step * 2, b + step * 2, !is_first || step > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (!is_first) let_go((stage + kStages - 1) % kStages);
    block.stage.next();
    wait_for(block);
  }
  __device__ void let_go(u32 stage) const {
    if (thread % kWarp == 0) barrier_arrive(NIBBLE_AT(base, empty) + stage * 8);
  }
  __device__ void wait_for_sums(const Block& block, float (&sums)[kValues]) const {
    wgmma_wait<0>();
    let_go((block.stage.index + kStages - 1) % kStages);
#pragma unroll
    for (int i = 0; i < kValues; ++i) wgmma_keep(sums[i]);
  }
  // Adds what another thread block has of these sums, if they begin in it.
  __device__ void finish_sums(const Block& block, const Piece& piece, float (&sums)[kValues]) const {
    wait_for_sums(block, sums);
    if (piece.first_pair == 0) return;
    float head[kValues] = {};
    take_over(outputs_of(piece), head);
#pragma unroll
    for (int i = 0; i < kValues; ++i) sums[i] += head[i];
  }

  // A super-block of nc1-f16, or the pair that is left of one.
  __device__ void sum_super_block(Block& block, u64 tokens, u64 weights, int n_blocks, float tensor_scale,
                                  float (&acc)[kValues]) const {
    const float d0 = block.d0, d1 = block.d1;
    float sums[kValues];
    for (int i = 0; i < n_blocks; ++i) add_block(block, tokens, weights, i == 0, sums);
    wait_for_sums(block, sums);
    promote_super_block(sums, d0, d1, tensor_scale, acc);
  }

  __device__ void run() const {
    wait_for_predecessors();
    if (kTakesTurns && turn == 1) named_arrive(kTurnBarrier, kTurnThreads);
    const u64 tokens = matrix_descriptor(NIBBLE_AT(base, tokens) + turn * 64 * kRowBytes);
    const u64 weights = matrix_descriptor(NIBBLE_AT(base, weights));
    Block block;
    wait_for(block);
    for (int i = 0; i < schedule.size(); ++i) {
      const Piece piece = schedule.at(p, i);
      const float scale = p.segments[piece.segment].scale;
      float acc[kValues];
      if constexpr (!kFree) {
#pragma unroll
        for (int v = 0; v < kValues; ++v) acc[v] = 0;
        if (piece.first_pair > 0) take_over(outputs_of(piece), acc);
      }
      for (int k = 2 * piece.first_pair; k < 2 * piece.end_pair; k += Contract::kBlocks) {
        if constexpr (kFree) {
          add_block(block, tokens, weights, k == 2 * piece.first_pair, acc);
        } else if constexpr (is_nc1_f16<Contract>) {
          sum_super_block(block, tokens, weights, min(Contract::kBlocks, 2 * piece.end_pair - k), scale, acc);
        } else {
          sum_block(block, tokens, weights, scale, acc);
        }
      }
      if constexpr (kFree) finish_sums(block, piece, acc);
      const Outputs to = outputs_of(piece);
      if (piece.end_pair < p.n_pairs) {
        hand_over(to, acc);
      } else {
        if constexpr (kFree) {
#pragma unroll
          for (int v = 0; v < kValues; ++v) acc[v] *= scale * kSumUnit;
        }
        if constexpr (is_nc1_f16<Contract>) {
#pragma unroll
          for (int v = 0; v < kValues; ++v) acc[v] = Contract::finish(acc[v]);
        }
        write(to, to.segment.bias, acc);
      }
    }
    if (kTakesTurns && turn == 0) named_sync(kTurnBarrier, kTurnThreads);  // the arrival that nobody waits for
  }
};

}  // namespace nibble::kernels::cuda::nvfp4
