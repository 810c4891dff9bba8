#include "tensor/quant_block.h"

#include <algorithm>

#include "base/check.h"
#include "format/half.h"

namespace nibble {
namespace {

using Bytes = const std::uint8_t*;

// dtype, code_bits, offset, group, is_super, has_minimum, largest_scale
constexpr QuantFormat kFormats[] = {
    {DType::kQ4_0, 4, 8, 32, false, false, 1},   {DType::kQ4_1, 4, 0, 32, false, true, 1},
    {DType::kQ5_0, 5, 16, 32, false, false, 1},  {DType::kQ5_1, 5, 0, 32, false, true, 1},
    {DType::kQ8_0, 8, 128, 32, false, false, 1}, {DType::kQ2_K, 2, 0, 16, true, true, 15},
    {DType::kQ3_K, 3, 4, 16, true, false, 32},   {DType::kQ4_K, 4, 0, 32, true, true, 63},
    {DType::kQ5_K, 5, 0, 32, true, true, 63},    {DType::kQ6_K, 6, 32, 16, true, false, 128},
};

std::uint16_t load_u16(Bytes at) {
  return static_cast<std::uint16_t>(at[0] | at[1] << 8);
}

// Codes gain the bits of this plane at `position`: element i has `width` bits of byte i % 32, from bit `shift` on.
void add_bits(Bytes plane, int shift, int width, int position, std::uint8_t* code /* [32] */) {
  const int mask = (1 << width) - 1;
  for (int i = 0; i < 32; ++i) code[i] |= static_cast<std::uint8_t>((plane[i] >> shift & mask) << position);
}

// --- blocks of 32: element i is the low nibble of byte i, element i + 16 its high nibble ---

void unpack_nibbles(Bytes codes, std::uint8_t* code) {
  for (int i = 0; i < 16; ++i) {
    code[i] = codes[i] & 15;
    code[i + 16] = codes[i] >> 4;
  }
}

// Fifth bits, one of four bytes each.
void add_fifth_bits(Bytes bits, std::uint8_t* code) {
  for (int i = 0; i < 32; ++i) code[i] |= static_cast<std::uint8_t>((bits[i / 8] >> (i % 8) & 1) << 4);
}

void unpack_half(const QuantFormat& format, Bytes block, std::uint8_t* code, std::uint16_t& d, std::uint16_t& m) {
  d = load_u16(block);
  block += 2;
  if (format.has_minimum) {
    m = load_u16(block);
    block += 2;
  }
  if (format.code_bits == 8) {
    for (int i = 0; i < 32; ++i) code[i] = block[i] ^ 0x80;  // two's complement to an offset of 128
    return;
  }
  const Bytes fifth = block;
  if (format.code_bits == 5) block += 4;
  unpack_nibbles(block, code);
  if (format.code_bits == 5) add_fifth_bits(fifth, code);
}

// --- super-blocks of 256: `part` is the quarter ---

// 6-bit scales and minimums of the 8 groups of Q4_K and Q5_K, in 12 bytes: the first four whole in bytes 0-7, the
// others with their low nibbles in bytes 8-11 and their top bits above the first four.
void unpack_k4_scale(Bytes scales, int group, std::int16_t& scale, std::int16_t& minimum) {
  if (group < 4) {
    scale = scales[group] & 63;
    minimum = scales[group + 4] & 63;
  } else {
    scale = static_cast<std::int16_t>((scales[group + 4] & 15) | scales[group - 4] >> 6 << 4);
    minimum = static_cast<std::int16_t>(scales[group + 4] >> 4 | scales[group] >> 6 << 4);
  }
}

void unpack_q4_k_q5_k(const QuantFormat& format, Bytes block, int part, QuantBlock& out) {
  out.d[0] = load_u16(block);
  out.m[0] = load_u16(block + 2);
  const bool has_fifth = format.code_bits == 5;
  const Bytes fifth = block + 16;  // [32]: element i has bit i / 32 of byte i % 32
  const Bytes codes = block + (has_fifth ? 48 : 16) + 32 * part;
  for (int half = 0; half < 2; ++half) {
    const int group = 2 * part + half;
    unpack_k4_scale(block + 4, group, out.scale[half], out.minimum[half]);
    add_bits(codes, 4 * half, 4, 0, out.code + 32 * half);
    if (has_fifth) add_bits(fifth, group, 1, 4, out.code + 32 * half);
  }
}

// Two bits an element: 128 elements share 32 bytes, element i in bits 2 * (i / 32).
void add_crumbs(Bytes crumbs, int part, int position, std::uint8_t* code /* [64] */) {
  for (int half = 0; half < 2; ++half) {
    const int stripe = 2 * part + half;
    add_bits(crumbs + stripe / 4 * 32, stripe % 4 * 2, 2, position, code + 32 * half);
  }
}

void unpack_q2_k(Bytes block, int part, QuantBlock& out) {
  add_crumbs(block + 16, part, 0, out.code);
  for (int g = 0; g < 4; ++g) {
    out.scale[g] = block[4 * part + g] & 15;
    out.minimum[g] = block[4 * part + g] >> 4;
  }
  out.d[0] = load_u16(block + 80);
  out.m[0] = load_u16(block + 82);
}

void unpack_q3_k(Bytes block, int part, QuantBlock& out) {
  const Bytes third = block;        // [32]: element i has bit i / 32 of byte i % 32
  const Bytes scales = block + 96;  // [12]: low nibbles of bytes 0-7, then their high nibbles; top bits in bytes 8-11
  add_crumbs(block + 32, part, 0, out.code);
  for (int half = 0; half < 2; ++half) add_bits(third, 2 * part + half, 1, 2, out.code + 32 * half);
  for (int g = 0; g < 4; ++g) {
    const int group = 4 * part + g;
    const int low = scales[group % 8] >> (group / 8 * 4) & 15;
    const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    out.scale[g] = static_cast<std::int16_t>((low | high << 4) - 32);
  }
  out.d[0] = load_u16(block + 108);
}

void unpack_q6_k(Bytes block, int part, QuantBlock& out) {
  const Bytes low = block + part / 2 * 64;  // 128 elements share 64 bytes
  for (int half = 0; half < 2; ++half) add_bits(low + 32 * half, part % 2 * 4, 4, 0, out.code + 32 * half);
  add_crumbs(block + 128, part, 4, out.code);
  for (int g = 0; g < 4; ++g) out.scale[g] = static_cast<std::int8_t>(block[192 + 4 * part + g]);
  out.d[0] = load_u16(block + 208);
}

void unpack_part(const QuantFormat& format, Bytes block, int part, QuantBlock& out) {
  switch (format.dtype) {
    case DType::kQ2_K:
      unpack_q2_k(block, part, out);
      break;
    case DType::kQ3_K:
      unpack_q3_k(block, part, out);
      break;
    case DType::kQ6_K:
      unpack_q6_k(block, part, out);
      break;
    default:
      unpack_q4_k_q5_k(format, block, part, out);
  }
  out.d[1] = out.d[0];
  out.m[1] = out.m[0];
}

}  // namespace

const QuantFormat* find_quant_format(DType dtype) {
  for (const QuantFormat& format : kFormats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

QuantBlock unpack_block(const QuantFormat& format, std::span<const std::byte> row, std::size_t index) {
  const auto* bytes = reinterpret_cast<Bytes>(row.data());
  const std::size_t block_bytes = dtype_info(format.dtype).block_bytes;
  QuantBlock out{};
  if (format.is_super) {
    NIBBLE_CHECK((index / 4 + 1) * block_bytes <= row.size(), "a block outside of the row");
    out.n = 64;
    unpack_part(format, bytes + index / 4 * block_bytes, static_cast<int>(index % 4), out);
    return out;
  }
  NIBBLE_CHECK((2 * index + 1) * block_bytes <= row.size(), "a block outside of the row");
  out.n = (2 * index + 2) * block_bytes <= row.size() ? 64 : 32;
  std::fill_n(out.code + 32, 32, static_cast<std::uint8_t>(format.offset));
  for (int half = 0; half < out.n / 32; ++half) {
    unpack_half(format, bytes + (2 * index + half) * block_bytes, out.code + 32 * half, out.d[half], out.m[half]);
    out.scale[half] = 1;
    out.minimum[half] = format.has_minimum ? -1 : 0;
  }
  return out;
}

// (d * scale) * q has at most 11 + 7 + 5 bits and m * minimum 11 + 6: both are exact, so there is one rounding.
void quant_row_to_f32(const QuantFormat& format, std::span<const std::byte> row, float* out) {
  const DTypeInfo& info = dtype_info(format.dtype);
  const std::size_t n = row.size() / info.block_bytes * info.block_size;
  for (std::size_t first = 0; first < n; first += 64) {
    const QuantBlock w = unpack_block(format, row, first / 64);
    for (int begin = 0; begin < w.n; begin += format.group) {
      const int g = begin / format.group;
      const float scale = format::f16_to_f32(w.d[begin / 32]) * w.scale[g];
      const float minimum = format::f16_to_f32(w.m[begin / 32]) * w.minimum[g];
      for (int i = begin; i < begin + format.group; ++i) {
        const float value = scale * static_cast<float>(w.code[i] - format.offset);
        out[first + i] = format.has_minimum ? value - minimum : value;
      }
    }
  }
}

}  // namespace nibble
