#include "oracle/activation.h"

#include "base/check.h"
#include "format/contract_math.h"

namespace nibble::oracle {

void silu_mul(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  NIBBLE_CHECK(gate.size() == up.size() && gate.size() == out.size(), "silu_mul: lengths differ");
  for (std::size_t i = 0; i < gate.size(); ++i) out[i] = format::silu(gate[i]) * up[i];
}

void gelu_tanh_mul(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  NIBBLE_CHECK(gate.size() == up.size() && gate.size() == out.size(), "gelu_tanh_mul: lengths differ");
  for (std::size_t i = 0; i < gate.size(); ++i) out[i] = format::gelu_tanh(gate[i]) * up[i];
}

}  // namespace nibble::oracle
