// Panels of NVFP4 for several tokens: codes times the scales of their groups, in int16, that meet int16.
#pragma once

namespace nibble::kernels::cpu {
namespace {

struct Nvfp4Panels {
  static constexpr bool kTakesPlanes = false;  // of activations

  static void pack(const std::uint8_t* record, std::int16_t* panel) { fold_record(record, panel); }
  // sums[t][v] += panel v times the block `at` + t of activations.
  template <int kPlanes, int kVectors, int kTokens>
  static void dot(const std::int16_t* panels, const Activations& in, std::size_t at, I32V (&sums)[kTokens][kVectors]) {
    dot_panels<32>(panels, in.q + 64 * at, sums);
  }
};

}  // namespace
}  // namespace nibble::kernels::cpu
