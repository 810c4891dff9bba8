// Gates of the feed-forward layer: the elementary functions of src/format/contract_math.h times `up`.
#pragma once

#include <span>

namespace nibble::oracle {

void silu_mul(std::span<const float> gate, std::span<const float> up, std::span<float> out);
void gelu_tanh_mul(std::span<const float> gate, std::span<const float> up, std::span<float> out);

}  // namespace nibble::oracle
