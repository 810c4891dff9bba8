#include "measure/tensor_error.h"

#include <fmt/format.h>

#include <cmath>

#include "io/dequantize.h"
#include "measure/file_contents.h"

namespace nibble::measure {
namespace {

struct RowError {
  double signal = 0, noise = 0;
};

Result<double> relative_rms(const Checkpoint& source, const Nvfp4View& weight, ThreadPool& pool) {
  NIBBLE_ASSIGN(const WeightView view, source.weight(weight.name));
  const auto* floats = std::get_if<TensorView>(&view);
  if (floats == nullptr || floats->rows() != weight.rows || floats->cols() != weight.cols ||
      !can_dequantize(floats->dtype)) {
    return Error{.message = "the source's tensor is not what this one was made of",
                 .file = source.file().path(),
                 .tensor = std::string(weight.name),
                 .expected = fmt::format("[{}, {}] in floats or k-quants", weight.cols, weight.rows)};
  }
  std::vector<RowError> rows(weight.rows);
  pool.parallel_for(weight.rows, 16, [&](std::size_t begin, std::size_t end, int) {
    std::vector<float> a(weight.cols), b(weight.cols);
    for (std::size_t row = begin; row < end; ++row) {
      dequantize_row(*floats, row, a);
      dequantize_row(weight, row, b);
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double x = a[i], d = static_cast<double>(b[i]) - x;
        rows[row].signal += x * x;
        rows[row].noise += d * d;
      }
    }
  });
  RowError sum;
  for (const RowError& row : rows) {
    sum.signal += row.signal;
    sum.noise += row.noise;
  }
  return sum.signal > 0 ? std::sqrt(sum.noise / sum.signal) : 0.0;
}

}  // namespace

Result<std::vector<TensorError>> tensor_errors(const Checkpoint* source, const Checkpoint& quantized, ThreadPool& pool,
                                               const std::function<void(std::size_t, std::size_t)>& progress) {
  std::vector<TensorError> errors;
  const std::vector<Nvfp4View>& weights = quantized.nvfp4_weights();
  errors.reserve(weights.size());
  for (const Nvfp4View& weight : weights) {
    TensorError& tensor = errors.emplace_back();
    tensor.name = weight.name;
    const TensorPlace place = place_of(weight.name);
    tensor.kind = place.kind;
    tensor.layer = place.layer;
    tensor.stats = nvfp4_stats(weight);
    if (source != nullptr) {
      NIBBLE_ASSIGN(tensor.relative_rms, relative_rms(*source, weight, pool));
    }
    if (progress) progress(errors.size(), weights.size());
  }
  return errors;
}

}  // namespace nibble::measure
