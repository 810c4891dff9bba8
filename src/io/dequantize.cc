#include "io/dequantize.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "format/half.h"
#include "format/nvfp4.h"

namespace nibble {
namespace {

using Bytes = const std::byte*;

unsigned u8(Bytes at) {
  return std::to_integer<unsigned>(*at);
}

int i8(Bytes at) {
  return static_cast<std::int8_t>(u8(at));
}

unsigned u16(Bytes at) {
  return u8(at) | u8(at + 1) << 8;
}

float f16(Bytes at) {
  return format::f16_to_f32(u16(at));
}

void decode_f32(Bytes in, float* out) {
  std::memcpy(out, in, sizeof *out);
}

void decode_f16(Bytes in, float* out) {
  *out = f16(in);
}

void decode_bf16(Bytes in, float* out) {
  *out = format::bf16_to_f32(u16(in));
}

// Blocks of 32: element i is the low nibble of byte i, element i + 16 its high nibble.
unsigned nibble_of_32(Bytes codes, int i) {
  return i < 16 ? u8(codes + i) & 15U : u8(codes + i - 16) >> 4;
}

unsigned bit_of(Bytes bits, int i) {
  return u8(bits + i / 8) >> (i % 8) & 1U;
}

void decode_q4_0(Bytes in, float* out) {
  const float d = f16(in);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int>(nibble_of_32(in + 2, i)) - 8);
}

void decode_q4_1(Bytes in, float* out) {
  const float d = f16(in);
  const float m = f16(in + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble_of_32(in + 4, i)) + m;
}

void decode_q5_0(Bytes in, float* out) {
  const float d = f16(in);
  for (int i = 0; i < 32; ++i) {
    const unsigned q = nibble_of_32(in + 6, i) | bit_of(in + 2, i) << 4;
    out[i] = d * static_cast<float>(static_cast<int>(q) - 16);
  }
}

void decode_q5_1(Bytes in, float* out) {
  const float d = f16(in);
  const float m = f16(in + 2);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(nibble_of_32(in + 8, i) | bit_of(in + 4, i) << 4) + m;
  }
}

void decode_q8_0(Bytes in, float* out) {
  const float d = f16(in);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(i8(in + 2 + i)) * d;
}

// K-quants: blocks of 256. Two-bit fields: 128 elements share 32 bytes, element i in bits 2 * (i / 32).
unsigned crumb_of(Bytes codes, int i) {
  return u8(codes + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3U;
}

// Four-bit fields of Q4_K and Q5_K: 64 elements share 32 bytes.
unsigned nibble_of_64(Bytes codes, int i) {
  return u8(codes + i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4) & 15U;
}

void decode_q2_k(Bytes in, float* out) {
  const Bytes scales = in;      // [16]: low nibble scale, high nibble minimum
  const Bytes codes = in + 16;  // [64]
  const float d = f16(in + 80);
  const float d_min = f16(in + 82);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(u8(scales + group) & 15U);
    const float minimum = d_min * static_cast<float>(u8(scales + group) >> 4);
    for (int i = group * 16; i < group * 16 + 16; ++i) {
      out[i] = scale * static_cast<float>(crumb_of(codes, i)) - minimum;
    }
  }
}

// The 6-bit scale of a group of 16: low nibbles of bytes 0-7, then their high nibbles; top bits in bytes 8-11.
int q3_k_scale(Bytes scales, int group) {
  const unsigned low = u8(scales + group % 8) >> (group / 8 * 4) & 15U;
  const unsigned high = u8(scales + 8 + group % 4) >> (group / 4 * 2) & 3U;
  return static_cast<int>(low | high << 4) - 32;
}

void decode_q3_k(Bytes in, float* out) {
  const Bytes high_bits = in;    // [32]: element i has bit i / 32 of byte i % 32; set means no subtraction of 4
  const Bytes codes = in + 32;   // [64]
  const Bytes scales = in + 96;  // [12]
  const float d = f16(in + 108);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(q3_k_scale(scales, group));
    for (int i = group * 16; i < group * 16 + 16; ++i) {
      const unsigned high = u8(high_bits + i % 32) >> (i / 32) & 1U;
      out[i] = scale * static_cast<float>(static_cast<int>(crumb_of(codes, i)) - (high != 0 ? 0 : 4));
    }
  }
}

// 6-bit scales and minimums of the 8 groups of 32 of Q4_K and Q5_K, in 12 bytes: the first four whole in bytes 0-7, the
// others with their low nibbles in bytes 8-11 and their top bits above the first four.
struct ScaleMin {
  float scale;
  float minimum;
};

ScaleMin k4_scale(Bytes scales, int group, float d, float d_min) {
  unsigned scale = 0;
  unsigned minimum = 0;
  if (group < 4) {
    scale = u8(scales + group) & 63U;
    minimum = u8(scales + group + 4) & 63U;
  } else {
    scale = (u8(scales + group + 4) & 15U) | (u8(scales + group - 4) >> 6 << 4);
    minimum = u8(scales + group + 4) >> 4 | (u8(scales + group) >> 6 << 4);
  }
  return {d * static_cast<float>(scale), d_min * static_cast<float>(minimum)};
}

void decode_q4_k(Bytes in, float* out) {
  const float d = f16(in);
  const float d_min = f16(in + 2);
  const Bytes codes = in + 16;  // [128]
  for (int group = 0; group < 8; ++group) {
    const ScaleMin sm = k4_scale(in + 4, group, d, d_min);
    for (int i = group * 32; i < group * 32 + 32; ++i) {
      out[i] = sm.scale * static_cast<float>(nibble_of_64(codes, i)) - sm.minimum;
    }
  }
}

void decode_q5_k(Bytes in, float* out) {
  const float d = f16(in);
  const float d_min = f16(in + 2);
  const Bytes high_bits = in + 16;  // [32]: element i has bit i / 32 of byte i % 32
  const Bytes codes = in + 48;      // [128]
  for (int group = 0; group < 8; ++group) {
    const ScaleMin sm = k4_scale(in + 4, group, d, d_min);
    for (int i = group * 32; i < group * 32 + 32; ++i) {
      const unsigned high = u8(high_bits + i % 32) >> group & 1U;
      out[i] = sm.scale * static_cast<float>(nibble_of_64(codes, i) | high << 4) - sm.minimum;
    }
  }
}

void decode_q6_k(Bytes in, float* out) {
  const Bytes low = in;           // [128]: 128 elements share 64 bytes
  const Bytes high = in + 128;    // [64], two bits each
  const Bytes scales = in + 192;  // [16], signed
  const float d = f16(in + 208);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(i8(scales + group));
    for (int i = group * 16; i < group * 16 + 16; ++i) {
      const unsigned nibble = u8(low + i / 128 * 64 + i % 64) >> (i % 128 / 64 * 4) & 15U;
      out[i] = scale * static_cast<float>(static_cast<int>(nibble | crumb_of(high, i) << 4) - 32);
    }
  }
}

template <int kBlock, int kBlockBytes, void (*kDecode)(Bytes, float*)>
void decode_blocks(Bytes in, float* out, std::size_t n_blocks) {
  for (std::size_t i = 0; i < n_blocks; ++i) kDecode(in + i * kBlockBytes, out + i * kBlock);
}

using DecodeBlocks = void (*)(Bytes in, float* out, std::size_t n_blocks);

DecodeBlocks decoder_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return decode_blocks<1, 4, decode_f32>;
    case DType::kF16:
      return decode_blocks<1, 2, decode_f16>;
    case DType::kBF16:
      return decode_blocks<1, 2, decode_bf16>;
    case DType::kQ4_0:
      return decode_blocks<32, 18, decode_q4_0>;
    case DType::kQ4_1:
      return decode_blocks<32, 20, decode_q4_1>;
    case DType::kQ5_0:
      return decode_blocks<32, 22, decode_q5_0>;
    case DType::kQ5_1:
      return decode_blocks<32, 24, decode_q5_1>;
    case DType::kQ8_0:
      return decode_blocks<32, 34, decode_q8_0>;
    case DType::kQ2_K:
      return decode_blocks<256, 84, decode_q2_k>;
    case DType::kQ3_K:
      return decode_blocks<256, 110, decode_q3_k>;
    case DType::kQ4_K:
      return decode_blocks<256, 144, decode_q4_k>;
    case DType::kQ5_K:
      return decode_blocks<256, 176, decode_q5_k>;
    case DType::kQ6_K:
      return decode_blocks<256, 210, decode_q6_k>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_dequantize(DType dtype) {
  return decoder_of(dtype) != nullptr;
}

void dequantize(DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  const DecodeBlocks decode = decoder_of(dtype);
  NIBBLE_CHECK(decode != nullptr, "a type that cannot be dequantized");
  NIBBLE_CHECK(blocks.size() == bytes_of(dtype, out.size()), "blocks and output of different sizes");
  decode(blocks.data(), out.data(), out.size() / dtype_info(dtype).block_size);
}

void dequantize_row(const TensorView& tensor, std::uint64_t row, std::span<float> out) {
  NIBBLE_CHECK(out.size() == tensor.cols(), "a row of another width");
  dequantize(tensor.dtype, tensor.row_span(row), out);
}

void dequantize_row(const Nvfp4View& weight, std::uint64_t row, std::span<float> out) {
  NIBBLE_CHECK(out.size() == weight.cols && row < weight.rows, "a row of another width, or none");
  const std::span<const std::uint8_t> codes = weight.row_codes(row);
  const std::span<const std::uint8_t> scales = weight.row_scales(row);
  for (std::size_t group = 0; group < scales.size(); ++group) {
    // One table of 16 weights a group: each is used by several elements, and has the pinned order of its product.
    std::array<float, 16> table{};
    for (unsigned code = 0; code < 16; ++code) {
      table[code] = format::nvfp4_dequantize(code, scales[group], weight.tensor_scale);
    }
    for (std::size_t i = 0; i < 8; ++i) {
      const unsigned byte = codes[group * 8 + i];
      out[group * 16 + 2 * i] = table[byte & 15];
      out[group * 16 + 2 * i + 1] = table[byte >> 4];
    }
  }
}

void dequantize_row(const Fp8View& weight, std::uint64_t row, std::span<float> out) {
  NIBBLE_CHECK(out.size() == weight.cols && row < weight.rows, "a row of another width, or none");
  fp8_row_to_f32(weight, row, out.data());
}

}  // namespace nibble
