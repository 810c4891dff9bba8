#include "io/tensor_stats.h"

#include <algorithm>
#include <cmath>

#include "format/e4m3.h"
#include "io/dequantize.h"

namespace nibble {
namespace {

// The bytes of a weight's scales are floats only here: elsewhere they are read together with the codes.
bool is_scales(const TensorView& tensor) {
  return tensor.dtype == DType::kF8_E4M3FN;
}

struct DecodeRow {
  std::uint64_t row;
  std::span<float> out;

  void operator()(const Nvfp4View& weight) const { dequantize_row(weight, row, out); }
  void operator()(const Fp8View& weight) const { dequantize_row(weight, row, out); }
  void operator()(const TensorView& tensor) const {
    if (!is_scales(tensor)) return dequantize_row(tensor, row, out);
    std::transform(tensor.row_span(row).begin(), tensor.row_span(row).end(), out.begin(),
                   [](std::byte scale) { return format::e4m3_decode(std::to_integer<format::u32>(scale)); });
  }
};

// Rows of any weight that can be decoded.
class RowReader {
 public:
  static Result<RowReader> create(const WeightView& weights) {
    const auto* tensor = std::get_if<TensorView>(&weights);
    if (tensor != nullptr && !can_dequantize(tensor->dtype) && !is_scales(*tensor)) {
      return Error{.message = "nibble cannot decode this type",
                   .tensor = std::string(tensor->name),
                   .found = std::string(dtype_name(tensor->dtype)),
                   .expected = "a float type, Q4_0..Q8_0, Q2_K..Q6_K, FP8, NVFP4 or its scales"};
    }
    return RowReader(weights);
  }
  std::uint64_t rows() const { return rows_; }
  std::uint64_t cols() const { return cols_; }
  void read(std::uint64_t row, std::span<float> out) const { std::visit(DecodeRow{row, out}, weights_); }

 private:
  explicit RowReader(const WeightView& weights) : weights_(weights) {
    if (const auto* nvfp4 = std::get_if<Nvfp4View>(&weights)) {
      rows_ = nvfp4->rows;
      cols_ = nvfp4->cols;
    } else if (const auto* fp8 = std::get_if<Fp8View>(&weights)) {
      rows_ = fp8->rows;
      cols_ = fp8->cols;
    } else {
      rows_ = std::get<TensorView>(weights).rows();
      cols_ = std::get<TensorView>(weights).cols();
    }
  }
  WeightView weights_;
  std::uint64_t rows_ = 0;
  std::uint64_t cols_ = 0;
};

}  // namespace

Nvfp4Stats nvfp4_stats(const Nvfp4View& weights) {
  Nvfp4Stats stats;
  for (const std::uint8_t byte : weights.codes) {
    ++stats.codes[byte & 15];
    ++stats.codes[byte >> 4];
  }
  for (const std::uint8_t scale : weights.scales) {
    ++stats.scale_exponents[scale >> 3 & 15];
    stats.zero_scales += (scale & 0x7F) == 0;
    stats.negative_scales += scale >> 7;
  }
  return stats;
}

Result<FloatStats> float_stats(const WeightView& weights) {
  NIBBLE_ASSIGN(const RowReader reader, RowReader::create(weights));
  std::vector<float> row(reader.cols());
  FloatStats stats{.min = INFINITY, .max = -INFINITY};
  double sum = 0;
  double squares = 0;
  for (std::uint64_t r = 0; r < reader.rows(); ++r) {
    reader.read(r, row);
    for (const float x : row) {
      stats.min = std::min(stats.min, x);
      stats.max = std::max(stats.max, x);
      sum += x;
      squares += static_cast<double>(x) * x;
    }
  }
  const double n = static_cast<double>(reader.rows() * reader.cols());
  stats.mean = sum / n;
  stats.rms = std::sqrt(squares / n);
  return stats;
}

Result<std::vector<float>> first_values(const WeightView& weights, std::size_t n) {
  NIBBLE_ASSIGN(const RowReader reader, RowReader::create(weights));
  std::vector<float> row(reader.cols());
  if (reader.rows() > 0) reader.read(0, row);
  row.resize(std::min(n, row.size()));
  return row;
}

}  // namespace nibble
