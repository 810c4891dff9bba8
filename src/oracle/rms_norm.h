// y_i = (x_i / sqrt(mean of x^2 + eps)) * w_i, in the order of docs/contract.md, section 5.
#pragma once

#include <span>

namespace nibble::oracle {

void rms_norm(std::span<const float> x, std::span<const float> weight, float eps, std::span<float> y);

}  // namespace nibble::oracle
