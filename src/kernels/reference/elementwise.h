// Row-wise steps of the reference backend that would be slow through the oracle; tests hold them to its bits.
#pragma once

#include <cstddef>

namespace nibble::kernels::reference {

// a11 of one row: integers as floats, the unit of each block of 64. False if the row holds a NaN or an infinity.
bool quantize_a11_row(const float* x, int n, float* q /* [n] */, float* d /* [ceil(n / 64)] */);

void silu_mul(const float* gate, const float* up, std::size_t n, float* out);
void gelu_mul(const float* gate, const float* up, std::size_t n, float* out);

}  // namespace nibble::kernels::reference
