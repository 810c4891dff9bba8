// Which blocks of NVFP4 weights f32 tiles add up without rounding (docs/contract.md, section 4).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"

namespace nibble::kernels::cpu {

// certified [n_records]: 1 where, in each of the 16 rows, kPartsBound times the sum of the weights' magnitudes is below
// 2^24 of the largest power of two that divides them all. Every partial sum of every order is then an f32. A wide
// record (nvfp4_tiles.h) has no certificate.
void certify_nvfp4_tiles(const std::uint8_t* records, std::size_t n_records, ThreadPool& pool, std::uint8_t* certified);

// The most that the parts of an activation, a multiple of 32 and 0..31, have in magnitude together: 1024 + 31.
constexpr int kPartsBound = 1055;

}  // namespace nibble::kernels::cpu
