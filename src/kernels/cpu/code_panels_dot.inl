// Panels of NVFP4 for several tokens on Arm with dot products of bytes: codes as they are, with the scales of their
// groups beside them, meet the planes of activations. A group's sum, 8 * high + low, is an int32 before it meets its
// scale.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// sdot: a lane is a row. A panel is [16 quads][4 rows][4 elements], then [4 groups][4 rows] scales.
struct Nvfp4Panels {
  static constexpr bool kTakesPlanes = true;

  static void pack(const std::uint8_t* record, std::int16_t* panel) {
    auto* to = reinterpret_cast<std::uint8_t*>(panel);
    for (int line = 0; line < 8; ++line) {
      Quads low, high;
      decode_quads(record + kLineBytes * line, low, high);
      store_bytes(to + 32 * line, low.v);
      store_bytes(to + 32 * line + 16, high.v);
    }
    const GroupScales scales = group_scales(record + kRecordScales);
    for (int g = 0; g < kGroupsPerBlock; ++g) store_words(to + kCodeBytes + 16 * g, scales.group[g]);
  }

  // sums[t][v] += panel v times the block `at` + t of activations.
  template <int kPlanes, int kVectors, int kTokens>
  static void dot(const std::int16_t* panels, const Activations& in, std::size_t at, I32V (&sums)[kTokens][kVectors]) {
    const PlaneBlock* planes = in.planes + at;
    for (int g = 0; g < kGroupsPerBlock; ++g) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto* panel = reinterpret_cast<const std::uint8_t*>(panels + v * kPanelSize);
        int8x16_t w[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) w[i] = load_bytes(panel + 64 * g + 16 * i);
        const int32x4_t scale = load_words(panel + kCodeBytes + 16 * g);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          int32x4_t sum = meet(vdupq_n_s32(0), w, planes[t].high + 16 * g);
          if constexpr (kPlanes == 2) sum = meet(vshlq_n_s32(sum, 3), w, planes[t].low + 16 * g);
          sums[t][v].v = vmlaq_s32(sums[t][v].v, sum, scale);
        }
      }
    }
  }

 private:
  static int32x4_t meet(int32x4_t sum, const int8x16_t* w, const std::int8_t* q) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum = dot_bytes(sum, w[i], q, i);
    return sum;
  }
};

}  // namespace
}  // namespace nibble::kernels::cpu
