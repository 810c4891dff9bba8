// The canonical float reduction (docs/contract.md, section 5): 256 lanes, lane = index mod 256, each an fma chain in
// increasing index from +0, then a halving tree.
#pragma once

#include <span>

#include "format/nc1.h"

namespace nibble::oracle {

constexpr int kReductionLanes = format::nc1::kReduceLanes;

float reduce_products(std::span<const float> a, std::span<const float> b);  // sum of a_i * b_i

}  // namespace nibble::oracle
