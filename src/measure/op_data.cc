#include "measure/op_data.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "tensor/dtype.h"

namespace nibble::measure {
namespace {

constexpr const char* kFormats = "nvfp4, f16, bf16, q8_0";

// Eight bytes a draw; mt19937_64 is the same everywhere.
void fill(std::span<std::uint8_t> bytes, std::mt19937_64& random) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t draw = random();
    std::memcpy(bytes.data() + i, &draw, std::min<std::size_t>(8, bytes.size() - i));
  }
}

// Keeps sign, the low mantissa bits and one or two bits of the exponent: magnitudes within a few octaves below 1.
void make_16bit(std::span<std::uint8_t> bytes, std::uint16_t keep, std::uint16_t set) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    std::uint16_t half;
    std::memcpy(&half, &bytes[i], 2);
    half = static_cast<std::uint16_t>((half & keep) | set);
    std::memcpy(&bytes[i], &half, 2);
  }
}

DType dtype_of(const std::string& format) {
  if (format == "f16") return DType::kF16;
  return format == "bf16" ? DType::kBF16 : DType::kQ8_0;
}

}  // namespace

Result<OpWeights> OpWeights::create(const std::string& format, int n, int k) {
  OpWeights w;
  w.format_ = format;
  w.n_ = n;
  w.k_ = k;
  const std::size_t elements = static_cast<std::size_t>(n) * static_cast<std::size_t>(k);
  std::mt19937_64 random(8);
  if (format == "nvfp4") {
    w.memory_ = AlignedBuffer<std::uint8_t>(elements / 2 + elements / kNvfp4Group);
    fill(w.memory_.span(), random);
    for (std::uint8_t& scale : w.memory_.span().subspan(elements / 2))
      scale = static_cast<std::uint8_t>(72 + scale % 24);
  } else if (format == "f16" || format == "bf16" || format == "q8_0") {
    const bool is_q8 = format == "q8_0";
    w.memory_ = AlignedBuffer<std::uint8_t>(is_q8 ? elements / 32 * 34 : 2 * elements);
    fill(w.memory_.span(), random);
    if (format == "f16") make_16bit(w.memory_.span(), 0x8FFF, 0x2000);
    if (format == "bf16") make_16bit(w.memory_.span(), 0x81FF, 0x3C00);
    for (std::size_t block = 0; is_q8 && block < w.memory_.size(); block += 34)
      make_16bit(w.memory_.span().subspan(block, 2), 0x0BFF, 0x1000);
  } else {
    return Error{.message = "unknown weight format '" + format + "'", .found = format, .expected = kFormats};
  }
  return w;
}

OpWeights OpWeights::copy() const {
  OpWeights other;
  other.format_ = format_;
  other.n_ = n_;
  other.k_ = k_;
  other.memory_ = AlignedBuffer<std::uint8_t>(memory_.size());
  std::memcpy(other.memory_.data(), memory_.data(), memory_.size());
  return other;
}

kernels::WeightSource OpWeights::source() const {
  const std::uint64_t n = static_cast<std::uint64_t>(n_), k = static_cast<std::uint64_t>(k_);
  const std::span<const std::uint8_t> bytes = memory_.span();
  if (format_ == "nvfp4") {
    return Nvfp4View{.name = "bench",
                     .rows = n,
                     .cols = k,
                     .codes = bytes.first(n * k / 2),
                     .scales = bytes.subspan(n * k / 2),
                     .tensor_scale = 0.01F,
                     .input_scale_inv = {}};
  }
  return TensorView{.name = "bench", .dtype = dtype_of(format_), .shape = {k, n}, .bytes = std::as_bytes(bytes)};
}

std::vector<float> op_activations(int m, int k) {
  std::mt19937_64 random(9);
  std::vector<float> x(static_cast<std::size_t>(m) * static_cast<std::size_t>(k));
  for (float& value : x) {
    const std::uint64_t draw = random();
    const int sum = static_cast<int>(draw & 0xFFFF) + static_cast<int>(draw >> 16 & 0xFFFF) +
                    static_cast<int>(draw >> 32 & 0xFFFF) - 3 * 32768;
    value = static_cast<float>(sum) * 0x1p-16F * (draw >> 48 < 66 ? 20.0F : 1.0F);
  }
  return x;
}

}  // namespace nibble::measure
