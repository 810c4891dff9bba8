#include "measure/op_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <string_view>

#include "format/e4m3.h"
#include "tensor/dtype.h"

namespace nibble::measure {
namespace {

// Rows as a GGUF has them, and where in a block its scales stand: one or two 16-bit floats.
struct RowFormat {
  std::string_view name;
  DType dtype;
  std::size_t scales_at;
  std::size_t n_scales;
};
constexpr RowFormat kRowFormats[] = {
    {"f16", DType::kF16, 0, 1},   {"bf16", DType::kBF16, 0, 1},  {"q4_0", DType::kQ4_0, 0, 1},
    {"q4_1", DType::kQ4_1, 0, 2}, {"q5_0", DType::kQ5_0, 0, 1},  {"q5_1", DType::kQ5_1, 0, 2},
    {"q8_0", DType::kQ8_0, 0, 1}, {"q2_k", DType::kQ2_K, 80, 2}, {"q3_k", DType::kQ3_K, 108, 1},
    {"q4_k", DType::kQ4_K, 0, 2}, {"q5_k", DType::kQ5_K, 0, 2},  {"q6_k", DType::kQ6_K, 208, 1},
};

const RowFormat* find_row_format(std::string_view name) {
  const auto* const found = std::ranges::find(kRowFormats, name, &RowFormat::name);
  return found == std::end(kRowFormats) ? nullptr : found;
}

// Eight bytes a draw; mt19937_64 is the same everywhere.
void fill(std::span<std::uint8_t> bytes, std::mt19937_64& random) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t draw = random();
    std::memcpy(bytes.data() + i, &draw, std::min<std::size_t>(8, bytes.size() - i));
  }
}

// Keeps sign, the low mantissa bits and one or two bits of the exponent: magnitudes within a few octaves.
void make_16bit(std::uint8_t* bytes, std::uint16_t keep, std::uint16_t set) {
  std::uint16_t half;
  std::memcpy(&half, bytes, 2);
  half = static_cast<std::uint16_t>((half & keep) | set);
  std::memcpy(bytes, &half, 2);
}

// Floats below 1; scales around 2^-11, positive and small as those of models are.
void make_finite(std::span<std::uint8_t> rows, const RowFormat& format) {
  const std::size_t block_bytes = dtype_info(format.dtype).block_bytes;
  for (std::size_t block = 0; block < rows.size(); block += block_bytes) {
    for (std::size_t i = 0; i < format.n_scales; ++i) {
      std::uint8_t* const number = &rows[block + format.scales_at + 2 * i];
      if (format.dtype == DType::kF16)
        make_16bit(number, 0x8FFF, 0x2000);
      else if (format.dtype == DType::kBF16)
        make_16bit(number, 0x81FF, 0x3C00);
      else
        make_16bit(number, 0x0BFF, 0x1000);
    }
  }
}

// About normal, and as a scale of their row leaves them: the largest of some thousands come to 448.
void fill_e4m3(std::span<std::uint8_t> codes, std::mt19937_64& random) {
  std::vector<std::uint8_t> table(1 << 16);
  for (std::uint8_t& code : table) {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(random() >> 40) * 0x1p-24F;
    code = format::e4m3_encode(112 * sum);
  }
  for (std::size_t i = 0; i < codes.size(); i += 4) {
    const std::uint64_t draw = random();
    for (std::size_t j = i; j < std::min(i + 4, codes.size()); ++j) codes[j] = table[draw >> (16 * (j - i)) & 0xFFFF];
  }
}

}  // namespace

std::vector<std::string> op_formats() {
  std::vector<std::string> names = {"nvfp4"};
  for (const RowFormat& format : kRowFormats) {
    names.emplace_back(format.name);
    if (format.dtype == DType::kBF16) names.emplace_back("fp8");
  }
  return names;
}

Status check_op_row(const std::string& format, int k) {
  const RowFormat* const rows = find_row_format(format);
  if (format == "fp8") return ok_status();
  if (rows == nullptr && format != "nvfp4") {
    return Error{.message = "unknown weight format '" + format + "'",
                 .found = format,
                 .expected = fmt::format("one of: {}", fmt::join(op_formats(), ", "))};
  }
  const int block = rows == nullptr ? kNvfp4Group : static_cast<int>(dtype_info(rows->dtype).block_size);
  if (k % block == 0) return ok_status();
  return Error{.message = fmt::format("a row of {} does not end with a block", format),
               .found = fmt::format("K = {}", k),
               .expected = fmt::format("a multiple of {}", block)};
}

Result<OpWeights> OpWeights::create(const std::string& format, int n, int k) {
  NIBBLE_TRY(check_op_row(format, k));
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
    return w;
  }
  if (format == "fp8") {
    const auto rows = static_cast<std::size_t>(n);
    w.memory_ = AlignedBuffer<std::uint8_t>(rows * sizeof(float) + elements);
    const std::vector<float> scales(rows, 0x1.4p-12F);
    std::memcpy(w.memory_.data(), scales.data(), rows * sizeof(float));
    fill_e4m3(w.memory_.span().subspan(rows * sizeof(float)), random);
    return w;
  }
  const RowFormat* const rows = find_row_format(format);
  w.memory_ = AlignedBuffer<std::uint8_t>(bytes_of(rows->dtype, elements));
  fill(w.memory_.span(), random);
  make_finite(w.memory_.span(), *rows);
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
  if (format_ == "fp8") {
    return Fp8View{.name = "bench",
                   .rows = n,
                   .cols = k,
                   .codes = bytes.subspan(n * sizeof(float)),
                   .scales = {reinterpret_cast<const float*>(bytes.data()), n},
                   .scale_rows = 1,
                   .scale_cols = k};
  }
  return TensorView{
      .name = "bench", .dtype = find_row_format(format_)->dtype, .shape = {k, n}, .bytes = std::as_bytes(bytes)};
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
