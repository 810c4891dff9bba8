#include "io/fp8_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/printable.h"
#include "format/nc1.h"
#include "io/nvfp4_container.h"
#include "io/scan.h"

namespace nibble {
namespace {

Error fault(const GgufFile& file, std::string_view name, std::string message, std::string found, std::string expected,
            std::string hint = {}) {
  const TensorView* tensor = file.find_tensor(name);
  return Error{.message = std::move(message),
               .file = tensor != nullptr ? file.path_of(*tensor) : file.path(),
               .tensor = printable(name),
               .found = std::move(found),
               .expected = std::move(expected),
               .hint = std::move(hint)};
}

std::string describe(const TensorView& tensor) {
  return fmt::format("{} {}", dtype_name(tensor.dtype), tensor.shape.to_string());
}

bool check_codes(const GgufFile& file, const TensorView& weight, ThreadPool* pool, std::vector<Error>& faults) {
  if (weight.shape.rank() != 2) {
    faults.push_back(fault(file, weight.name, fmt::format("{} cannot be FP8", printable(weight.name)),
                           weight.shape.to_string(), "[n_in, n_out]"));
    return false;
  }
  const NonFinite nan = find_non_finite(weight, pool);
  if (nan.count == 0) return true;
  faults.push_back(fault(file, weight.name, fmt::format("{} contains E4M3FN NaN", printable(weight.name)),
                         fmt::format("{} NaN bytes, the first 0x{:02X} at row {}, column {}", nan.count,
                                     std::to_integer<unsigned>(weight.bytes[nan.first]), nan.first / weight.cols(),
                                     nan.first % weight.cols()),
                         "no byte 0x7F or 0xFF", "the source model or its conversion is damaged"));
  return false;
}

// The extents of the tile that a scale belongs to, [cols, rows]; rank 0 where the shape is none of the three.
Shape tile_of(const TensorView& weight, const Shape& scales) {
  const auto tiles = [](std::uint64_t n) { return (n + kFp8Tile - 1) / kFp8Tile; };
  if (scales == Shape{1}) return {weight.cols(), weight.rows()};
  if (scales == Shape{weight.rows()}) return {weight.cols(), 1};
  if (scales == Shape{tiles(weight.cols()), tiles(weight.rows())}) return {kFp8Tile, kFp8Tile};
  return {};
}

bool is_in_range(float scale) {
  return scale >= format::nc1::kTensorScaleMin && scale <= format::nc1::kTensorScaleMax;
}

}  // namespace

bool is_companion(std::string_view tensor_name) {
  return is_nvfp4_companion(tensor_name) || tensor_name.ends_with(kFp8ScaleSuffix);
}

bool is_fp8_weight(const TensorView& tensor) {
  return tensor.dtype == DType::kF8_E4M3FN && !is_companion(tensor.name);
}

void check_fp8_orphans(const GgufFile& file, std::vector<Error>& faults) {
  for (const TensorView& tensor : file.tensors()) {
    if (faults.size() >= kMaxFaults) return;
    if (!tensor.name.ends_with(kFp8ScaleSuffix)) continue;
    const std::string_view base = tensor.name.substr(0, tensor.name.size() - kFp8ScaleSuffix.size());
    const TensorView* weight = file.find_tensor(base);
    if (weight != nullptr && is_fp8_weight(*weight)) continue;
    faults.push_back(fault(file, tensor.name,
                           fmt::format("{} is a companion without an FP8 weight", printable(tensor.name)),
                           weight != nullptr ? describe(*weight) : "no such tensor",
                           fmt::format("{} of type F8_E4M3FN", printable(base))));
  }
}

std::optional<Fp8View> check_fp8_weight(const GgufFile& file, const TensorView& weight, ThreadPool* pool,
                                        std::vector<Error>& faults) {
  if (!check_codes(file, weight, pool, faults)) return std::nullopt;
  const std::string name = std::string(weight.name).append(kFp8ScaleSuffix);
  const TensorView* tensor = file.find_tensor(name);
  if (tensor == nullptr) {
    faults.push_back(fault(file, name, fmt::format("the scales of {} are missing", printable(weight.name)),
                           "no such tensor", fmt::format("a tensor {}", printable(name))));
    return std::nullopt;
  }
  const Shape tile = tile_of(weight, tensor->shape);
  if (tensor->dtype != DType::kF32 || tile.rank() == 0) {
    faults.push_back(fault(file, name, fmt::format("the scales of {} do not fit it", printable(weight.name)),
                           describe(*tensor),
                           fmt::format("F32 [1], [{}] or [{}, {}]", weight.rows(), (weight.cols() - 1) / kFp8Tile + 1,
                                       (weight.rows() - 1) / kFp8Tile + 1)));
    return std::nullopt;
  }
  const std::span scales(reinterpret_cast<const float*>(tensor->bytes.data()), tensor->shape.size());
  const auto bad = std::find_if_not(scales.begin(), scales.end(), is_in_range);
  if (bad != scales.end()) {
    faults.push_back(
        fault(file, name,
              fmt::format("a scale of {} is out of the range that contracts compute with", printable(weight.name)),
              fmt::format("{}, element {}", *bad, bad - scales.begin()), "2^-42 to 2^42"));
    return std::nullopt;
  }
  return Fp8View{.name = weight.name,
                 .rows = weight.rows(),
                 .cols = weight.cols(),
                 .codes = {reinterpret_cast<const std::uint8_t*>(weight.bytes.data()), weight.bytes.size()},
                 .scales = scales,
                 .scale_rows = tile.rows(),
                 .scale_cols = tile.cols()};
}

}  // namespace nibble
