// The unnormalized Hadamard butterfly (docs/contract.md, section 7, step 1). Twice is multiplication by its size.
#pragma once

#include <span>

namespace nibble::oracle {

// H: the largest power of two that divides head_dim.
int hadamard_size(int head_dim);

// In place, in consecutive blocks of hadamard_size(x.size()).
void hadamard(std::span<float> x);

}  // namespace nibble::oracle
