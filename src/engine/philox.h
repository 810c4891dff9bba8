// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a counter-based generator, so
// that the noise of a position does not depend on what was drawn before.
#pragma once

#include <array>
#include <cstdint>

namespace nibble::engine {

constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                     std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;  // Weyl sequence of the golden ratio
    key[1] += 0xBB67AE85;  // and of sqrt(3) - 1
  }
  return counter;
}

// The 64-bit draw of (seed, position, request).
constexpr std::uint64_t philox_draw(std::uint64_t seed, std::uint64_t position, std::uint64_t request) {
  const auto lo = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto hi = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words = philox4x32_10({lo(position), hi(position), lo(request), hi(request)}, {lo(seed), hi(seed)});
  return std::uint64_t{words[1]} << 32 | words[0];
}

}  // namespace nibble::engine
