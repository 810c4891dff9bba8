#include "oracle/rope.h"

#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "format/portable.h"

namespace nibble::oracle {
namespace {

// sum of c_i * (x / 2^32)^i for the 32-bit fraction x, from the last coefficient, wrapping at 32 bits.
std::int32_t horner(std::span<const std::int32_t> coefficients, std::uint32_t x) {
  std::int32_t acc = 0;
  for (std::size_t i = coefficients.size(); i-- > 0;) {
    const std::int64_t scaled = (std::int64_t{acc} * std::int64_t{x}) >> 32;
    acc = static_cast<std::int32_t>(static_cast<std::uint32_t>(coefficients[i]) + static_cast<std::uint32_t>(scaled));
  }
  return acc;
}

// (cos, sin) of 2 pi * phase / 2^32: two bits of quadrant, one that mirrors the octant, 29 bits inside it.
std::pair<float, float> cos_sin_of_phase(std::uint32_t phase) {
  constexpr std::array<std::int32_t, 8> kSin = {0, 843314857, 0, -86699833, 0, 2673908, 0, -38839};
  constexpr std::array<std::int32_t, 7> kCos = {1073741823, 0, -331167724, 0, 17017653, 0, -341628};
  const bool mirrored = (phase >> 29 & 1) != 0;
  std::uint32_t x = phase << 3;
  if (mirrored) x = x == 0 ? 0xFFFFFFFFU : 0U - x;
  float s = static_cast<float>(horner(kSin, x)) * 0x1p-30F;
  float c = static_cast<float>(horner(kCos, x)) * 0x1p-30F;
  if (mirrored) std::swap(s, c);
  switch (phase >> 30) {
    case 0:
      return {c, s};
    case 1:
      return {-s, c};
    case 2:
      return {-c, -s};
    default:
      return {s, -c};
  }
}

}  // namespace

void rope(std::span<float> head, std::span<const float> cos_sin, bool interleaved) {
  const std::size_t pairs = cos_sin.size() / 2;
  NIBBLE_CHECK(2 * pairs <= head.size(), "rope rotates more dimensions than the head has");
  for (std::size_t i = 0; i < pairs; ++i) {
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + pairs];
    const float c = cos_sin[2 * i];
    const float s = cos_sin[2 * i + 1];
    const float a = first;
    const float b = second;
    first = format::fma_rn(a, c, -(b * s));
    second = format::fma_rn(a, s, b * c);
  }
}

std::array<float, 2 * kOscillatorPairs> oscillator_cos_sin(std::int32_t position) {
  constexpr double kPhasePerRadian = 683565275.5764316;  // 2^32 / 2 pi
  const float ratio = format::bits_float(0x3F508AC1U);   // 500000^(-1/64)
  std::array<float, 2 * kOscillatorPairs> out{};
  auto theta = static_cast<float>(position);
  for (int i = 0; i < kOscillatorPairs; ++i) {
    const double turns = std::floor(double{theta} * kPhasePerRadian + 0.5);
    const auto phase = static_cast<std::uint32_t>(static_cast<std::int64_t>(turns));
    std::tie(out[2 * i], out[2 * i + 1]) = cos_sin_of_phase(phase);
    theta = theta * ratio;
  }
  return out;
}

}  // namespace nibble::oracle
