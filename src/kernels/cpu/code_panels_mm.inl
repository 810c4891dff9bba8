// Panels of NVFP4 for several tokens on Arm with matrix products of bytes: codes as they are, with the scales of their
// groups beside them, meet the planes of activations. A group's sum, 8 * high + low, is an int32 before it meets its
// scale.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// smmla: two rows meet two tokens over eight elements, and a lane is a row and a token. A panel is [8 eights][2 pairs
// of rows][2 rows][8 elements], then [4 groups][2 pairs of rows] scales, each twice.
struct Nvfp4Panels {
  static constexpr bool kTakesPlanes = true;

  static void pack(const std::uint8_t* record, std::int16_t* panel) {
    auto* to = reinterpret_cast<std::uint8_t*>(panel);
    for (int line = 0; line < 8; ++line) {
      Quads low, high;
      decode_quads(record + kLineBytes * line, low, high);
      const int32x4_t first = vreinterpretq_s32_s8(low.v), second = vreinterpretq_s32_s8(high.v);
      store_words(to + 32 * line, vzip1q_s32(first, second));
      store_words(to + 32 * line + 16, vzip2q_s32(first, second));
    }
    const GroupScales scales = group_scales(record + kRecordScales);
    for (int g = 0; g < kGroupsPerBlock; ++g) {
      const int32x4_t rows = scales.group[g];
      store_words(to + kCodeBytes + 32 * g, vzip1q_s32(rows, rows));
      store_words(to + kCodeBytes + 32 * g + 16, vzip2q_s32(rows, rows));
    }
  }

  // sums[t][v] += panel v times the block `at` + t of activations.
  template <int kPlanes, int kVectors, int kTokens>
  static void dot(const std::int16_t* panels, const Activations& in, std::size_t at, I32V (&sums)[kTokens][kVectors]) {
    const PlaneBlock* planes = in.planes + at;
    constexpr int kPairs = (kTokens + 1) / 2;  // of tokens; an odd last one meets the rows twice
    int32x4_t totals[kPairs][kVectors][2];
#pragma GCC unroll 8
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) totals[pair][v][0] = totals[pair][v][1] = vdupq_n_s32(0);
    }
    for (int g = 0; g < kGroupsPerBlock; ++g) {
      Eights q[kPairs][kPlanes];
#pragma GCC unroll 8
      for (int pair = 0; pair < kPairs; ++pair) {
        const PlaneBlock &first = planes[2 * pair], &second = planes[2 * pair + 1 < kTokens ? 2 * pair + 1 : 2 * pair];
        q[pair][0] = eights(first.high + 16 * g, second.high + 16 * g);
        if constexpr (kPlanes == 2) q[pair][1] = eights(first.low + 16 * g, second.low + 16 * g);
      }
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto* panel = reinterpret_cast<const std::uint8_t*>(panels + v * kPanelSize);
#pragma GCC unroll 2
        for (int rows = 0; rows < 2; ++rows) {
          const Eights w{load_bytes(panel + 64 * g + 16 * rows), load_bytes(panel + 64 * g + 32 + 16 * rows)};
          const int32x4_t scale = load_words(panel + kCodeBytes + 32 * g + 16 * rows);
#pragma GCC unroll 8
          for (int pair = 0; pair < kPairs; ++pair) {
            int32x4_t sum = meet(vdupq_n_s32(0), w, q[pair][0]);
            if constexpr (kPlanes == 2) sum = meet(vshlq_n_s32(sum, 3), w, q[pair][1]);
            totals[pair][v][rows] = vmlaq_s32(totals[pair][v][rows], sum, scale);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const int32x4_t* rows = totals[t / 2][v];
        sums[t][v].v =
            vaddq_s32(sums[t][v].v, t % 2 == 0 ? vuzp1q_s32(rows[0], rows[1]) : vuzp2q_s32(rows[0], rows[1]));
      }
    }
  }

 private:
  struct Eights {
    int8x16_t first, second;  // elements 0 to 7 and 8 to 15 of a group, of two rows or tokens
  };
  static Eights eights(const std::int8_t* a, const std::int8_t* b) {
    const int64x2_t x = vreinterpretq_s64_s8(vld1q_s8(a)), y = vreinterpretq_s64_s8(vld1q_s8(b));
    return {vreinterpretq_s8_s64(vzip1q_s64(x, y)), vreinterpretq_s8_s64(vzip2q_s64(x, y))};
  }
  static int32x4_t meet(int32x4_t sum, Eights w, Eights q) {
    return vmmlaq_s32(vmmlaq_s32(sum, w.first, q.first), w.second, q.second);
  }
};

}  // namespace
}  // namespace nibble::kernels::cpu
