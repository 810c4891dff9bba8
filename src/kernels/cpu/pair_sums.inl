// Sums of pairs where the dot product of pairs ends each addition; NEON has a sum of its own, which it ends once.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// A sum of pairs on its way, which total() ends.
using PairSum = I32V;
inline PairSum pair_sum_zero() {
  return i32_zero();
}
inline PairSum add_pairs(PairSum sum, I32V w, I32V q) {
  return pair_dot(sum, w, q);
}
inline I32V total(PairSum sum) {
  return sum;
}

}  // namespace
}  // namespace nibble::kernels::cpu
