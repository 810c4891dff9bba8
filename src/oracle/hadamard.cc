#include "oracle/hadamard.h"

namespace nibble::oracle {

int hadamard_size(int head_dim) {
  return head_dim & -head_dim;
}

void hadamard(std::span<float> x) {
  const std::size_t size = static_cast<std::size_t>(hadamard_size(static_cast<int>(x.size())));
  for (std::size_t stride = 1; stride < size; stride *= 2) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i];
      const float b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
}

}  // namespace nibble::oracle
