#include "kernels/cpu/amx_certificate.h"

#include <array>
#include <bit>
#include <cstring>

#include "format/e2m1.h"
#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {
namespace {

// Of the two codes of a byte: the sum of their magnitudes in halves, and the bits that these have.
struct TwoCodes {
  std::uint8_t sum, bits;
};
constexpr std::array<TwoCodes, 256> two_codes() {
  std::array<TwoCodes, 256> table = {};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const int low = format::e2m1_x2(byte & 7), high = format::e2m1_x2(byte >> 4 & 7);
    table[byte] = {static_cast<std::uint8_t>(low + high), static_cast<std::uint8_t>(low | high)};
  }
  return table;
}
constexpr std::array<TwoCodes, 256> kTwoCodes = two_codes();

bool is_certified(const std::uint8_t* record, int row) {
  const std::uint8_t* scales = record + kRecordScales + 4 * row;
  std::int32_t sum = 0;  // at most 64 * 12 * 1920
  std::uint32_t bits = 0;
  for (int g = 0; g < kGroupsPerBlock; ++g) {
    int group_sum = 0;
    unsigned group_bits = 0;
    for (int line = 2 * g; line < 2 * g + 2; ++line) {
      const std::uint8_t* codes = record + kLineBytes * line + 4 * row;
      for (int i = 0; i < 4; ++i) {
        group_sum += kTwoCodes[codes[i]].sum;
        group_bits |= kTwoCodes[codes[i]].bits;
      }
    }
    if (group_sum == 0) continue;
    const int byte = scales[kQuadOrder[g]];
    const int scale = (8 + (byte & 7)) << (byte >> 3 & 7);
    sum += scale * group_sum;
    bits |= 1U << (std::countr_zero(static_cast<unsigned>(scale)) + std::countr_zero(group_bits));
  }
  return bits == 0 || std::int64_t{kPartsBound} * (sum >> std::countr_zero(bits)) < std::int64_t{1} << 24;
}

bool is_certified(const std::uint8_t* record) {
  std::uint32_t first_row;
  std::memcpy(&first_row, record + kRecordScales, sizeof first_row);
  if (first_row == kWideMark * 0x01010101U) return false;
  for (int row = 0; row < kTileRows; ++row) {
    if (!is_certified(record, row)) return false;
  }
  return true;
}

}  // namespace

void certify_nvfp4_tiles(const std::uint8_t* records, std::size_t n_records, ThreadPool& pool,
                         std::uint8_t* certified) {
  constexpr std::size_t kGrain = 64;  // threads share no cache line
  const auto certify = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) certified[i] = is_certified(records + i * kRecordBytes) ? 1 : 0;
  };
  pool.parallel_for(n_records, kGrain, certify);
}

}  // namespace nibble::kernels::cpu
