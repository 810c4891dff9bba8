// How many integer products an instruction set can add up: the limit beside which the speed of a gemm means something.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// Runs at least n_ops multiplications and additions of int16 pairs and returns how many it ran. Chains of sums do not
// wait for each other; 6 x 2 of them (2 x 4 where vectors are short and registers few) fill what can be in flight. The
// columns come from another address each time, so that no product can be computed once for all.
std::uint64_t dot_peak(std::uint64_t n_ops) {
  constexpr int kWeights = kLanes >= 16 ? 6 : 2, kColumns = kLanes >= 16 ? 2 : 4, kPlaces = 16 / kColumns;
  constexpr std::uint64_t kOpsOfStep = std::uint64_t{2} * 32 * kWeights * kColumns * kPlaces;
  alignas(64) std::int16_t operands[(kWeights + kColumns * (kPlaces + 1)) * 32] = {};
  __asm__ volatile("" : : "r"(operands) : "memory");  // nobody knows that they are zeros
  I16x32 weights[kWeights];
  Partial sums[kWeights * kColumns] = {};
#pragma GCC unroll 6
  for (int w = 0; w < kWeights; ++w) weights[w] = i16_load(operands + 32 * w);
  const std::uint64_t n_steps = n_ops / kOpsOfStep + 1;
  for (std::uint64_t step = 0; step < n_steps; ++step) {
    const std::int16_t* column = operands + 32 * (kWeights + kColumns * (step % 2));
#pragma GCC unroll 16
    for (int i = 0; i < kColumns * kPlaces; ++i) {
      const I16x32 x = i16_load(column + 32 * i);
      Partial* sum = sums + kWeights * (i % kColumns);
#pragma GCC unroll 6
      for (int w = 0; w < kWeights; ++w) sum[w] = dot(sum[w], weights[w], x);
    }
  }
  Partial kept[kWeights * kColumns];  // a copy: sums themselves stay in registers as long as nobody has their address
#pragma GCC unroll 12
  for (int i = 0; i < kWeights * kColumns; ++i) kept[i] = sums[i];
  __asm__ volatile("" : : "r"(kept) : "memory");
  return n_steps * kOpsOfStep;
}

}  // namespace
}  // namespace nibble::kernels::cpu
