#include "oracle/reduce.h"

#include <array>

#include "base/check.h"
#include "format/portable.h"

namespace nibble::oracle {

float reduce_products(std::span<const float> a, std::span<const float> b) {
  NIBBLE_CHECK(a.size() == b.size(), "the factors of a reduction differ in length");
  std::array<float, kReductionLanes> lanes{};
  for (std::size_t i = 0; i < a.size(); ++i) {
    float& lane = lanes[i % kReductionLanes];
    lane = format::fma_rn(a[i], b[i], lane);
  }
  for (int half = kReductionLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  }
  return lanes[0];
}

}  // namespace nibble::oracle
