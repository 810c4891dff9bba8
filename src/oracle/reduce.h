// The canonical float reduction (docs/contract.md, section 5): 256 lanes, lane = index mod 256, each an fma chain in
// increasing index from +0, then a halving tree.
#pragma once

#include <span>

namespace nibble::oracle {

constexpr int kReductionLanes = 256;

float reduce_products(std::span<const float> a, std::span<const float> b);  // sum of a_i * b_i

}  // namespace nibble::oracle
