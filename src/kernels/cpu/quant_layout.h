// Block-quantized weights of GGUF as the kernels read them. As with NVFP4 (nvfp4_tiles.h), 16 rows by one block of 64
// are one record of whole cache lines, and the records of a tile of rows are one sequential stream. A line holds four
// bytes a row; byte j of four belongs to element kQuadOrder[j] of a quad of elements, or to group kQuadOrder[j].
//
//   4 to 6 bits: line t holds bits 0-3 of quads t and t + 8. Of higher bits, a line holds more quads:
//   2, 3 bits:   line t / 2 holds bits 0-1 of quads t and t + 8, from bit t % 2 * 4 and two above it on
//     two bits of 6:        line t / 2, in the same way
//     one bit of 3 and 5:   line t / 4, from bit t % 4 * 2 and one above it on
//   super-blocks: a line of integers (groups of 32: scale 0, minimum 0, scale 1, minimum 1; groups of 16: scales, in
//                 Q2_K with the minimum above the scale's four bits). Their d and m lie apart
//                 (QuantWeights::super_scales)
//   blocks of 32: a line of d [2, 16] in f16, and one of m where the type has it
//
// As in the vocabularies, nothing here is shared by the linker (kernel_table.h): no std header with code, and a copy
// for each object.
#pragma once

#include <cstddef>

#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {
namespace {

struct QuantLayout {
  int bits;
  int offset;  // a code stands for code - offset
  int group;   // elements that share integers, 16 or 32
  bool is_super;
  bool has_minimum;

  constexpr int low_bits() const { return bits >= 4 ? 4 : 2; }
  constexpr int high_bits() const { return bits - low_bits(); }
  constexpr int high_at() const { return 2 * low_bits() * kLineBytes; }
  constexpr int scales_at() const { return high_at() + 2 * high_bits() * kLineBytes; }
  constexpr int record_bytes() const { return scales_at() + (is_super || !has_minimum ? 1 : 2) * kLineBytes; }
};

// In the order of KernelTable::linear_quant.
constexpr QuantLayout kQ4_0 = {4, 8, 32, false, false};
constexpr QuantLayout kQ4_1 = {4, 0, 32, false, true};
constexpr QuantLayout kQ5_0 = {5, 16, 32, false, false};
constexpr QuantLayout kQ5_1 = {5, 0, 32, false, true};
constexpr QuantLayout kQ2_K = {2, 0, 16, true, true};
constexpr QuantLayout kQ3_K = {3, 4, 16, true, false};
constexpr QuantLayout kQ4_K = {4, 0, 32, true, true};
constexpr QuantLayout kQ5_K = {5, 0, 32, true, true};
constexpr QuantLayout kQ6_K = {6, 32, 16, true, false};
constexpr QuantLayout kQuantLayouts[kQuantTypes] = {kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K};

}  // namespace
}  // namespace nibble::kernels::cpu
