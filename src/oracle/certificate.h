// When a block's integer sum is exact in f32 units in any order of summation (docs/contract.md, section 4).
#pragma once

#include <cstdint>

#include "oracle/linear.h"

namespace nibble::oracle {

// B of elements [first, first + n) of the row: 1023 * sum |q9 * q1|, divided by the largest power of two that divides
// every product q9 * q1. 0 for a block of zeros.
std::int64_t certificate_bound(const Nvfp4Row& w, std::size_t first, std::size_t n);

constexpr std::int64_t kCertificateLimit = std::int64_t{1} << 24;

}  // namespace nibble::oracle
