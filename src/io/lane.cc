#include "io/lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "tensor/quant_block.h"

namespace nibble {

bool needs_nk1(DType dtype) {
  return dtype != DType::kQ8_0 && find_quant_format(dtype) != nullptr;
}

const TensorView* first_that_needs_nk1(const GgufFile& file) {
  const auto found = std::ranges::find_if(file.tensors(), [](const TensorView& t) { return needs_nk1(t.dtype); });
  return found != file.tensors().end() ? &*found : nullptr;
}

Lane lane_of(const GgufFile& file) {
  const bool has_nvfp4 =
      std::ranges::any_of(file.tensors(), [](const TensorView& t) { return t.dtype == DType::kNVFP4_E2M1; });
  if (!has_nvfp4) return Lane::kKquant;
  return first_that_needs_nk1(file) != nullptr ? Lane::kMixed : Lane::kNvfp4;
}

std::string_view lane_name(Lane lane) {
  if (lane == Lane::kMixed) return "mixed";
  return lane == Lane::kNvfp4 ? "nvfp4" : "kquant";
}

Status check_lane(const GgufFile& file, std::string_view wanted) {
  const Lane lane = lane_of(file);
  if (wanted.empty() || wanted == lane_name(lane)) return ok_status();
  const TensorView* k_quant = first_that_needs_nk1(file);
  std::string advice;
  if (wanted == "nvfp4") {
    advice = lane == Lane::kMixed ? "quantize its source again, with a head of f16, q8_0 or nvfp4; or "
                                  : "make an NVFP4 file of it with 'nibble quantize'; or ";
  }
  return Error{.message = "the file is not of the lane that was asked for",
               .file = file.path(),
               .found = k_quant == nullptr ? std::string(lane_name(lane))
                                           : fmt::format("{}: {} is {}", lane_name(lane), printable(k_quant->name),
                                                         dtype_name(k_quant->dtype)),
               .expected = std::string(wanted),
               .hint = advice + "leave {lane} out: the file decides"};
}

}  // namespace nibble
