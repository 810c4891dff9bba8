// Recipe "max": the rules of NVIDIA ModelOpt's NVFP4 export, bit for bit. The tensor scale maps the largest weight to
// the largest code times the largest block scale; block scales are rounded, then the codes are chosen for the rounded.
#pragma once

#include <cstdint>
#include <span>

namespace nibble {

// amax / (6 * 448); 1 for a tensor of zeros.
float max_tensor_scale(float amax);

// The E4M3 byte of a group whose largest magnitude is `amax`.
std::uint8_t max_block_scale(float amax, float tensor_scale);

// One row of finite weights [cols], cols a multiple of 16, into codes [cols / 2] and scales [cols / 16].
void quantize_row_max(std::span<const float> weights, float tensor_scale, std::span<std::uint8_t> codes,
                      std::span<std::uint8_t> scales);

}  // namespace nibble
