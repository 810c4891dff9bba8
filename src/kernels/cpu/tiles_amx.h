// The eight tile registers of AMX, each 16 rows of 64 bytes. Assembly and not the compiler's intrinsics: those of gcc
// 12 do not say what memory they read, so that it drops or moves the stores before them.
#pragma once

#include <cstdint>

namespace nibble::kernels::cpu {
namespace {

// "memory" everywhere keeps loads, tile operations and vector work in the order of the source, which is a schedule.
struct AmxTiles {
  struct alignas(64) Config {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  void configure() {
    const Config config;
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  // Not a destructor, which would want the handler of exceptions, a symbol that is shared.
  void release() { __asm__ volatile("tilerelease" : : : "memory"); }

  template <int kTile>
  [[gnu::always_inline]] void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] void load(const void* p /* [16, 64 bytes] */) {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(p), "r"(std::int64_t{64}) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] void store(float* p /* [16, 16] */) {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(p), "r"(std::int64_t{64}) : "memory");
  }
  // sum[m][n] += over 16 pairs of bf16: a[m][pair] * b[pair][n].
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] void dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB) : "memory");
  }
};

}  // namespace
}  // namespace nibble::kernels::cpu
