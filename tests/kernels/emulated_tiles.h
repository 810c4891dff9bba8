// The tile registers of AMX as plain loops, so that the gemm on them is compared with the oracle on every machine.
#pragma once

#include <cstdint>

namespace nibble::kernels::cpu {
namespace {

class EmulatedTiles {
 public:
  void configure() {}
  void release() {}
  template <int kTile>
  void zero() {
    __builtin_memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void load(const void* p) {
    __builtin_memcpy(tiles_[kTile], p, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void store(float* p) {
    __builtin_memcpy(p, tiles_[kTile], sizeof tiles_[kTile]);
  }
  template <int kSum, int kA, int kB>
  void dot() {
    for (int m = 0; m < 16; ++m) {
      for (int pair = 0; pair < 16; ++pair) {
        const std::uint32_t a = tiles_[kA][m][pair];
        for (int n = 0; n < 16; ++n) {
          const std::uint32_t b = tiles_[kB][pair][n];
          const float sum = __builtin_bit_cast(float, tiles_[kSum][m][n]);
          tiles_[kSum][m][n] = __builtin_bit_cast(std::uint32_t, (sum + low(a) * low(b)) + high(a) * high(b));
        }
      }
    }
  }

 private:
  static float low(std::uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
  static float high(std::uint32_t pair) { return __builtin_bit_cast(float, pair & 0xFFFF0000); }

  std::uint32_t tiles_[8][16][16] = {};  // bits of f32, or of pairs of bf16
};

}  // namespace
}  // namespace nibble::kernels::cpu
