// What the start-up canaries compute with, and what they compare: a fixed sequence of values and a digest of results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/half.h"

namespace nibble::kernels {

// The same sequence on every machine.
class CanaryValues {
 public:
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  // In [-4, 4), of many magnitudes.
  float next() {
    const std::uint32_t b = bits();
    const auto integer = static_cast<float>(static_cast<std::int32_t>(b & 0xFFFFF) - 0x80000);
    return integer * format::bits_float((107U - (b >> 29)) << 23);
  }
  std::vector<float> floats(std::size_t n) {
    std::vector<float> out(n);
    for (float& x : out) x = next();
    return out;
  }

 private:
  std::uint64_t state_ = 42;
};

// FNV-1a over the bits of floats: a digest, not a defence.
class CanaryDigest {
 public:
  void add(std::span<const float> values) {
    for (const float value : values) hash_ = (hash_ ^ format::float_bits(value)) * 0x100000001B3ULL;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325ULL;
};

}  // namespace nibble::kernels
