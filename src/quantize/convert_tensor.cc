#include "quantize/convert_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/mapped_file.h"
#include "base/printable.h"
#include "format/portable.h"
#include "io/dequantize.h"
#include "io/fp8_weights.h"
#include "io/nvfp4_container.h"
#include "io/scan.h"
#include "quantize/encode_row.h"
#include "quantize/nvfp4_recipe.h"

namespace nibble {
namespace {

constexpr std::uint64_t kSlabWeights = std::uint64_t{4} << 20;
constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

std::string companion(const TensorPlan& plan, std::string_view suffix) {
  return plan.name + std::string(suffix);
}

// Everything that a pass over the rows of one tensor needs. Rows are handed out in slabs; what a row contributes to
// sums goes to its own slot and is added in row order, so that the number of threads changes nothing.
class TensorPass {
 public:
  TensorPass(const GgufFile& file, const TensorPlan& plan, ThreadPool& pool, const SourceProgress& progress)
      : file_(file),
        plan_(plan),
        pool_(pool),
        progress_(progress),
        n_passes_(plan.dtype == DType::kNVFP4_E2M1 ? 2 : 1),
        row_buffers_(static_cast<std::size_t>(pool.size())) {
    for (std::vector<float>& buffer : row_buffers_) buffer.resize(plan.source.cols());
  }

  // per_row(row, values) for every row, on any thread; per_slab(first, count) after each slab, in order.
  template <typename PerRow, typename PerSlab>
  Status run(PerRow per_row, PerSlab per_slab) {
    const TensorView& source = plan_.source;
    const std::uint64_t slab = std::max<std::uint64_t>(1, kSlabWeights / source.cols());
    for (std::uint64_t first = 0; first < source.rows(); first += slab) {
      const std::uint64_t count = std::min(slab, source.rows() - first);
      pool_.parallel_for(count, 1, [&](std::size_t begin, std::size_t end, int thread) {
        const std::span<float> values = row_buffers_[static_cast<std::size_t>(thread)];
        for (std::uint64_t row = first + begin; row < first + end; ++row) {
          dequantize_row(source, row, values);
          per_row(row, std::span<const float>(values));
        }
      });
      NIBBLE_TRY(per_slab(first, count));
      const std::span<const std::byte> bytes = source.row_span(first, count);
      release_pages(bytes);
      bytes_read_ += bytes.size();
      if (progress_) NIBBLE_TRY(progress_(bytes_read_ / n_passes_));
    }
    return ok_status();
  }

  Error refuse(std::string what, std::uint64_t row, std::uint64_t column) const {
    std::vector<float> values(plan_.source.cols());
    dequantize_row(plan_.source, row, values);
    return Error{.message = fmt::format("{} {}", printable(plan_.source.name), what),
                 .file = file_.path_of(plan_.source),
                 .tensor = printable(plan_.source.name),
                 .found = fmt::format("{} at row {}, column {}", values[column], row, column),
                 .expected = "finite weights within the range of the target type",
                 .hint = "the source model or its conversion is damaged"};
  }

  const TensorPlan& plan() const { return plan_; }
  std::uint64_t rows() const { return plan_.source.rows(); }
  std::uint64_t cols() const { return plan_.source.cols(); }

 private:
  const GgufFile& file_;
  const TensorPlan& plan_;
  ThreadPool& pool_;
  const SourceProgress& progress_;
  std::uint64_t n_passes_;  // NVFP4: the largest magnitude first
  std::uint64_t bytes_read_ = 0;
  std::vector<std::vector<float>> row_buffers_;  // [n_threads][cols]
};

WeightError error_of(std::span<const float> source, std::span<const float> stored) {
  WeightError error;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const double value = source[i];
    const double difference = value - stored[i];
    error.signal += value * value;
    error.noise += difference * difference;
  }
  return error;
}

WeightError sum(const std::vector<WeightError>& rows) {
  WeightError total;
  for (const WeightError& row : rows) {
    total.signal += row.signal;
    total.noise += row.noise;
  }
  return total;
}

// Of a row that does not fit into FP8, the weight that is to blame.
Status refuse_largest(const TensorPass& pass, std::uint64_t row) {
  std::vector<float> values(pass.cols());
  dequantize_row(pass.plan().source, row, values);
  const auto largest = std::ranges::max_element(values, {}, format::abs_bits);  // NaN above all
  return pass.refuse("has a weight that FP8 cannot hold", row, static_cast<std::uint64_t>(largest - values.begin()));
}

// The largest magnitude of the tensor; an Error where a weight is not finite.
Result<float> find_amax(TensorPass& pass) {
  std::vector<std::uint32_t> row_amax(pass.rows());  // bits: magnitudes are ordered like them, NaN above all
  const auto per_row = [&](std::uint64_t row, std::span<const float> values) {
    std::uint32_t amax = 0;
    for (float value : values) amax = std::max(amax, format::abs_bits(value));
    row_amax[row] = amax;
  };
  std::uint32_t amax = 0;
  const auto per_slab = [&](std::uint64_t first, std::uint64_t count) -> Status {
    for (std::uint64_t row = first; row < first + count; ++row) {
      amax = std::max(amax, row_amax[row]);
      if (!format::is_nonfinite(format::bits_float(row_amax[row]))) continue;
      std::vector<float> values(pass.cols());
      dequantize_row(pass.plan().source, row, values);
      const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return format::is_nonfinite(v); });
      return pass.refuse("has a weight that is not finite", row, static_cast<std::uint64_t>(bad - values.begin()));
    }
    return ok_status();
  };
  NIBBLE_TRY(pass.run(per_row, per_slab));
  return format::bits_float(amax);
}

Result<float> find_tensor_scale(const GgufFile& file, TensorPass& pass, Recipe recipe) {
  NIBBLE_ASSIGN(const float amax, find_amax(pass));
  const float scale = tensor_scale_of(recipe, amax);
  if (scale >= kMinTensorScale && scale <= kMaxTensorScale) return scale;
  return Error{
      .message = fmt::format("the weights of {} have a magnitude that nc1 cannot hold", printable(pass.plan().name)),
      .file = file.path_of(pass.plan().source),
      .tensor = printable(pass.plan().name),
      .found = fmt::format("largest magnitude {}", amax),
      .expected = "2688 * 2^-42 to 2688 * 2^42, or all zero"};
}

Result<WeightError> append_nvfp4(const GgufFile& file, TensorPass& pass, Recipe recipe, GgufWriter& writer) {
  NIBBLE_ASSIGN(const float tensor_scale, find_tensor_scale(file, pass, recipe));
  const std::uint64_t code_bytes = pass.cols() / 2;
  const std::uint64_t n_groups = pass.cols() / kNvfp4Group;
  std::vector<std::uint8_t> codes;                           // of one slab, [rows, cols / 2]
  std::vector<std::uint8_t> scales(pass.rows() * n_groups);  // of the whole tensor
  std::vector<WeightError> errors(pass.rows());
  const std::uint64_t slab = std::max<std::uint64_t>(1, kSlabWeights / pass.cols());
  codes.resize(std::min(slab, pass.rows()) * code_bytes);
  const auto per_row = [&](std::uint64_t row, std::span<const float> values) {
    const std::span<std::uint8_t> row_codes = std::span(codes).subspan(row % slab * code_bytes, code_bytes);
    const std::span<std::uint8_t> row_scales = std::span(scales).subspan(row * n_groups, n_groups);
    quantize_row(recipe, values, tensor_scale, row_codes, row_scales);
    std::vector<float> stored(values.size());
    const Nvfp4View view{.name = {},
                         .rows = 1,
                         .cols = pass.cols(),
                         .codes = row_codes,
                         .scales = row_scales,
                         .tensor_scale = tensor_scale,
                         .input_scale_inv = {}};
    dequantize_row(view, 0, stored);
    errors[row] = error_of(values, stored);
  };
  const auto per_slab = [&](std::uint64_t, std::uint64_t count) {
    return writer.append(pass.plan().name, std::as_bytes(std::span(codes).first(count * code_bytes)));
  };
  NIBBLE_TRY(pass.run(per_row, per_slab));
  NIBBLE_TRY(writer.append(companion(pass.plan(), kScaleSuffix), std::as_bytes(std::span(scales))));
  NIBBLE_TRY(writer.append(companion(pass.plan(), kTensorScaleSuffix), std::as_bytes(std::span(&tensor_scale, 1))));
  return sum(errors);
}

Result<WeightError> append_float(TensorPass& pass, GgufWriter& writer) {
  const DType dtype = pass.plan().dtype;
  const std::uint64_t row_bytes = bytes_of(dtype, pass.cols());
  const std::uint64_t slab = std::max<std::uint64_t>(1, kSlabWeights / pass.cols());
  std::vector<std::byte> encoded(std::min(slab, pass.rows()) * row_bytes);
  std::vector<std::uint64_t> misfit(pass.rows(), kNone);  // column of the first weight that does not fit
  std::vector<WeightError> errors(pass.rows());
  const auto per_row = [&](std::uint64_t row, std::span<const float> values) {
    const std::span<std::byte> out = std::span(encoded).subspan(row % slab * row_bytes, row_bytes);
    if (const std::optional<std::size_t> column = encode_row(dtype, values, out)) {
      misfit[row] = *column;
      return;
    }
    std::vector<float> stored(values.size());
    dequantize(dtype, out, stored);
    errors[row] = error_of(values, stored);
  };
  const auto per_slab = [&](std::uint64_t first, std::uint64_t count) -> Status {
    for (std::uint64_t row = first; row < first + count; ++row) {
      if (misfit[row] != kNone) {
        return pass.refuse(fmt::format("has a weight that {} cannot hold", dtype_name(dtype)), row, misfit[row]);
      }
    }
    return writer.append(pass.plan().name, std::span(encoded).first(count * row_bytes));
  };
  NIBBLE_TRY(pass.run(per_row, per_slab));
  return sum(errors);
}

Result<WeightError> append_fp8(TensorPass& pass, GgufWriter& writer) {
  const std::uint64_t cols = pass.cols(), slab = std::max<std::uint64_t>(1, kSlabWeights / cols);
  std::vector<std::uint8_t> codes(std::min(slab, pass.rows()) * cols);  // of one slab
  std::vector<float> scales(pass.rows());                               // 0: the row does not fit
  std::vector<WeightError> errors(pass.rows());
  const auto per_row = [&](std::uint64_t row, std::span<const float> values) {
    const std::span<std::uint8_t> out = std::span(codes).subspan(row % slab * cols, cols);
    scales[row] = encode_fp8_row(values, out).value_or(0.0F);
    std::vector<float> stored(cols);
    const Fp8View view{
        .name = {}, .rows = 1, .cols = cols, .codes = out, .scales = {&scales[row], 1}, .scale_cols = cols};
    dequantize_row(view, 0, stored);
    errors[row] = error_of(values, stored);
  };
  const auto per_slab = [&](std::uint64_t first, std::uint64_t count) -> Status {
    for (std::uint64_t row = first; row < first + count; ++row) {
      if (scales[row] == 0) NIBBLE_TRY(refuse_largest(pass, row));
    }
    return writer.append(pass.plan().name, std::as_bytes(std::span(codes).first(count * cols)));
  };
  NIBBLE_TRY(pass.run(per_row, per_slab));
  NIBBLE_TRY(writer.append(companion(pass.plan(), kFp8ScaleSuffix), std::as_bytes(std::span(scales))));
  return sum(errors);
}

Status append_verbatim(const GgufFile& file, const TensorPlan& plan, GgufWriter& writer, ThreadPool& pool) {
  const NonFinite found = find_non_finite(plan.source, &pool);
  if (found.count != 0) {
    const TensorPass pass(file, plan, pool, {});
    const std::uint64_t index = found.first * found.unit;
    return pass.refuse("has a block whose scale is not finite", index / plan.source.cols(), index % plan.source.cols());
  }
  NIBBLE_TRY(writer.append(plan.name, plan.source.bytes));
  release_pages(plan.source.bytes);
  return ok_status();
}

}  // namespace

void declare_tensor(const TensorPlan& plan, GgufWriter& writer) {
  const Shape& shape = plan.source.shape;
  writer.declare_tensor(plan.name, plan.dtype, shape);
  if (plan.dtype == DType::kF8_E4M3FN) {
    writer.declare_tensor(companion(plan, kFp8ScaleSuffix), DType::kF32, {shape.rows()});
  }
  if (plan.dtype != DType::kNVFP4_E2M1) return;
  writer.declare_tensor(companion(plan, kScaleSuffix), DType::kF8_E4M3FN, {shape.cols() / kNvfp4Group, shape.rows()});
  writer.declare_tensor(companion(plan, kTensorScaleSuffix), DType::kF32, {1});
}

Result<TensorSummary> append_tensor(const GgufFile& source, const TensorPlan& plan, Recipe recipe, GgufWriter& writer,
                                    ThreadPool& pool, const SourceProgress& progress) {
  TensorSummary summary{.name = plan.name,
                        .from = plan.source.dtype,
                        .to = plan.dtype,
                        .is_matrix = plan.source.shape.rank() > 1,
                        .n_weights = plan.source.shape.size(),
                        .error = {},
                        .note = plan.note};
  if (plan.verbatim) {
    NIBBLE_TRY(append_verbatim(source, plan, writer, pool));
    return summary;
  }
  TensorPass pass(source, plan, pool, progress);
  if (plan.dtype == DType::kNVFP4_E2M1) {
    NIBBLE_ASSIGN(summary.error, append_nvfp4(source, pass, recipe, writer));
  } else if (plan.dtype == DType::kF8_E4M3FN) {
    NIBBLE_ASSIGN(summary.error, append_fp8(pass, writer));
  } else {
    NIBBLE_ASSIGN(summary.error, append_float(pass, writer));
  }
  return summary;
}

}  // namespace nibble
