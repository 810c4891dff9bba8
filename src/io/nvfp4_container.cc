#include "io/nvfp4_container.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/printable.h"
#include "io/lane.h"
#include "io/scan.h"

namespace nibble {
namespace {

Error fault(const GgufFile& file, std::string_view name, std::string message, std::string found = {},
            std::string expected = {}, std::string hint = {}) {
  const TensorView* tensor = file.find_tensor(name);
  return Error{.message = std::move(message),
               .file = tensor != nullptr ? file.path_of(*tensor) : file.path(),
               .tensor = printable(name),
               .found = std::move(found),
               .expected = std::move(expected),
               .hint = std::move(hint)};
}

Error key_fault(const GgufFile& file, std::string_view key, std::string message, std::string found = {},
                std::string expected = {}, std::string hint = {}) {
  return Error{.message = std::move(message),
               .file = file.path(),
               .key = printable(key),
               .found = std::move(found),
               .expected = std::move(expected),
               .hint = std::move(hint)};
}

std::string describe(const TensorView& tensor) {
  return fmt::format("{} {}", dtype_name(tensor.dtype), tensor.shape.to_string());
}

bool is_nvfp4(const TensorView& tensor) {
  return tensor.dtype == DType::kNVFP4_E2M1;
}

bool has_nvfp4(const GgufFile& file) {
  return std::any_of(file.tensors().begin(), file.tensors().end(), is_nvfp4);
}

// The string of an optional key; nullopt and a fault where it is not a string.
std::optional<std::string_view> string_of(const GgufFile& file, std::string_view key, std::vector<Error>& faults) {
  Result<std::optional<std::string_view>> value = file.find_string(key);
  if (value.ok()) return *value;
  faults.push_back(std::move(value).error());
  return std::nullopt;
}

void check_weight_precision(const GgufFile& file, std::vector<Error>& faults) {
  const std::optional<std::string_view> precision = string_of(file, kWeightPrecisionKey, faults);
  if (precision && *precision != "nvfp4" && *precision != "q4_k_xl") {
    faults.push_back(key_fault(file, kWeightPrecisionKey, "this weight precision is not supported",
                               printable(*precision), "\"nvfp4\", \"q4_k_xl\", or no such key"));
    return;
  }
  const bool announced = precision == "nvfp4";
  if (announced == has_nvfp4(file)) return;
  if (announced) {
    faults.push_back(key_fault(file, kWeightPrecisionKey, "the metadata announces NVFP4 weights but no tensor has them",
                               "no tensor of type NVFP4_E2M1", "at least one"));
  } else {
    faults.push_back(key_fault(file, kWeightPrecisionKey,
                               "the file has NVFP4 weights that its metadata does not announce",
                               precision ? printable(*precision) : "no such key", "\"nvfp4\""));
  }
}

// True where activations are announced as NVFP4: every weight then has its input scale.
bool check_activation_precision(const GgufFile& file, std::vector<Error>& faults) {
  const std::optional<std::string_view> precision = string_of(file, kActivationPrecisionKey, faults);
  if (precision && *precision != "f16" && *precision != "nvfp4") {
    faults.push_back(key_fault(file, kActivationPrecisionKey, "this activation precision is not supported",
                               printable(*precision), "\"f16\", \"nvfp4\", or no such key"));
  }
  if (precision == "nvfp4" && !has_nvfp4(file)) {
    faults.push_back(key_fault(file, kActivationPrecisionKey, "NVFP4 activations are announced without NVFP4 weights"));
  }
  return precision == "nvfp4";
}

void check_sha256_form(const GgufFile& file, std::string_view key, std::vector<Error>& faults) {
  const std::optional<std::string_view> digest = string_of(file, key, faults);
  if (!digest) return;
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
  if (digest->size() == 64 && std::all_of(digest->begin(), digest->end(), is_hex)) return;
  faults.push_back(key_fault(file, key, "the digest is not a SHA-256", printable(*digest), "64 hexadecimal digits"));
}

void check_schema(const GgufFile& file, std::vector<Error>& faults) {
  const std::optional<std::string_view> schema = string_of(file, kSchemaKey, faults);
  if (!schema || *schema == kSchema) return;
  faults.push_back(key_fault(file, kSchemaKey, "the container's schema is not supported", printable(*schema),
                             std::string(kSchema), "a newer nibble may read it"));
}

void check_recipe(const GgufFile& file, std::vector<Error>& faults) {
  const std::optional<std::string_view> recipe = string_of(file, kRecipeKey, faults);
  if (recipe && recipe->empty()) faults.push_back(key_fault(file, kRecipeKey, "the name of the recipe is empty"));
}

// A companion must have its weight.
void check_orphans(const GgufFile& file, std::vector<Error>& faults) {
  for (const TensorView& tensor : file.tensors()) {
    if (faults.size() >= kMaxFaults) return;
    for (const std::string_view suffix : {kScaleSuffix, kTensorScaleSuffix, kInputScaleSuffix}) {
      if (!tensor.name.ends_with(suffix)) continue;
      const std::string_view base = tensor.name.substr(0, tensor.name.size() - suffix.size());
      const TensorView* weight = file.find_tensor(base);
      if (weight != nullptr && is_nvfp4(*weight)) continue;
      faults.push_back(fault(file, tensor.name,
                             fmt::format("{} is a companion without an NVFP4 weight", printable(tensor.name)),
                             weight != nullptr ? describe(*weight) : "no such tensor",
                             fmt::format("{} of type NVFP4_E2M1", printable(base))));
    }
  }
}

bool check_geometry(const GgufFile& file, const TensorView& weight, std::vector<Error>& faults) {
  if (weight.shape.rank() == 2 && weight.cols() % kNvfp4Group == 0) return true;
  faults.push_back(fault(file, weight.name, fmt::format("{} cannot be NVFP4", printable(weight.name)),
                         weight.shape.to_string(), "[n_in, n_out] with n_in a multiple of 16"));
  return false;
}

const TensorView* check_scales(const GgufFile& file, const TensorView& weight, ThreadPool* pool,
                               std::vector<Error>& faults) {
  const std::string name = std::string(weight.name) + std::string(kScaleSuffix);
  const TensorView* scales = file.find_tensor(name);
  if (scales == nullptr) {
    faults.push_back(fault(file, name, fmt::format("the scales of {} are missing", printable(weight.name)),
                           "no such tensor", fmt::format("a tensor {}", printable(name))));
    return nullptr;
  }
  const Shape expected = {weight.cols() / kNvfp4Group, weight.rows()};
  if (scales->dtype != DType::kF8_E4M3FN || scales->shape != expected) {
    faults.push_back(fault(file, name, fmt::format("the scales of {} do not fit it", printable(weight.name)),
                           describe(*scales), fmt::format("F8_E4M3FN {}", expected.to_string())));
    return nullptr;
  }
  const NonFinite nan = find_non_finite(*scales, pool);
  if (nan.count == 0) return scales;
  const std::uint64_t groups = expected.cols();
  faults.push_back(
      fault(file, name, fmt::format("the scales of {} contain E4M3FN NaN", printable(weight.name)),
            fmt::format("{} NaN bytes, the first 0x{:02X} at row {}, group {}", nan.count,
                        std::to_integer<unsigned>(scales->bytes[nan.first]), nan.first / groups, nan.first % groups),
            "no byte 0x7F or 0xFF", "the model was quantized wrongly: quantize it again"));
  return nullptr;
}

// A companion F32 [1] that must be finite and positive. Absent without a fault is nullopt when `optional`.
std::optional<float> check_scalar(const GgufFile& file, const TensorView& weight, std::string_view suffix,
                                  bool optional, std::vector<Error>& faults) {
  const std::string name = std::string(weight.name) + std::string(suffix);
  const TensorView* tensor = file.find_tensor(name);
  if (tensor == nullptr) {
    if (!optional) {
      faults.push_back(fault(file, name, fmt::format("the tensor scale of {} is missing", printable(weight.name)),
                             "no such tensor", fmt::format("a tensor {}", printable(name))));
    }
    return std::nullopt;
  }
  if (tensor->dtype != DType::kF32 || tensor->shape != Shape{1}) {
    faults.push_back(
        fault(file, name, fmt::format("{} must be scalar F32", printable(name)), describe(*tensor), "F32 [1]"));
    return std::nullopt;
  }
  float value = 0;
  std::memcpy(&value, tensor->bytes.data(), sizeof value);
  if (std::isfinite(value) && value > 0) return value;
  faults.push_back(fault(file, name, fmt::format("{} must be finite and positive", printable(name)),
                         fmt::format("{}", value), "a finite number above 0"));
  return std::nullopt;
}

void check_range(const GgufFile& file, const TensorView& weight, float tensor_scale, std::vector<Error>& faults) {
  if (tensor_scale >= kMinTensorScale && tensor_scale <= kMaxTensorScale) return;
  faults.push_back(fault(file, std::string(weight.name) + std::string(kTensorScaleSuffix),
                         fmt::format("the tensor scale of {} is out of the range of nc1", printable(weight.name)),
                         fmt::format("{}", tensor_scale), "2^-42 to 2^42"));
}

void check_input_scale_presence(const GgufFile& file, const TensorView& weight, bool announced,
                                std::vector<Error>& faults) {
  const std::string name = std::string(weight.name) + std::string(kInputScaleSuffix);
  const bool present = file.find_tensor(name) != nullptr;
  if (announced == present) return;
  faults.push_back(
      fault(file, name,
            fmt::format("the input scale of {} does not match {}", printable(weight.name), kActivationPrecisionKey),
            present ? "an input scale" : "no input scale",
            announced ? "one, for NVFP4 activations" : "none, for f16 activations"));
}

std::span<const std::uint8_t> as_u8(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

bool is_nvfp4_companion(std::string_view tensor_name) {
  return tensor_name.ends_with(kScaleSuffix) || tensor_name.ends_with(kTensorScaleSuffix) ||
         tensor_name.ends_with(kInputScaleSuffix);
}

std::string_view contract_name(Contract contract) {
  switch (contract) {
    case Contract::kNc1:
      return "nc1";
    case Contract::kNk1:
      return "nk1";
    case Contract::kNc1F16:
      return "nc1-f16";
    case Contract::kW4A4:
      return "w4a4";
    case Contract::kNative:
      return "native";
    case Contract::kNativeFp4:
      break;
  }
  return "native-fp4";
}

Result<Contract> contract_of(const GgufFile& file) {
  NIBBLE_ASSIGN(const std::optional<std::string_view> id, file.find_string(kContractKey));
  if (id) {
    for (const Contract contract : kContracts) {
      if (*id == contract_name(contract) && !is_native(contract)) return contract;
    }
    return key_fault(file, kContractKey, "this numeric contract is not supported", printable(*id),
                     "\"nc1\", \"nk1\", \"nc1-f16\" or \"w4a4\"", "a newer nibble may know it");
  }
  const bool declares_muser = std::any_of(file.metadata().begin(), file.metadata().end(),
                                          [](const GgufEntry& entry) { return entry.key.starts_with("muser."); });
  if (declares_muser && lane_of(file) != Lane::kKquant) return Contract::kNc1F16;
  return first_that_needs_nk1(file) != nullptr ? Contract::kNk1 : Contract::kNc1;
}

Nvfp4Rules check_nvfp4_metadata(const GgufFile& file, std::vector<Error>& faults) {
  Nvfp4Rules rules;
  Result<Contract> contract = contract_of(file);
  rules.bounded_tensor_scale = contract.ok() && (*contract == Contract::kNc1 || *contract == Contract::kNk1);
  if (!contract.ok()) faults.push_back(std::move(contract).error());
  check_weight_precision(file, faults);
  rules.input_scales = check_activation_precision(file, faults);
  check_schema(file, faults);
  check_recipe(file, faults);
  check_sha256_form(file, kArtifactSha256Key, faults);
  check_sha256_form(file, kSourceSha256Key, faults);
  check_orphans(file, faults);
  return rules;
}

std::optional<Nvfp4View> check_nvfp4_weight(const GgufFile& file, const TensorView& weight, const Nvfp4Rules& rules,
                                            ThreadPool* pool, std::vector<Error>& faults) {
  if (!check_geometry(file, weight, faults)) return std::nullopt;
  const std::size_t n_before = faults.size();
  const TensorView* scales = check_scales(file, weight, pool, faults);
  const std::optional<float> tensor_scale = check_scalar(file, weight, kTensorScaleSuffix, false, faults);
  const std::optional<float> input_scale_inv = check_scalar(file, weight, kInputScaleSuffix, true, faults);
  check_input_scale_presence(file, weight, rules.input_scales, faults);
  if (tensor_scale && rules.bounded_tensor_scale) check_range(file, weight, *tensor_scale, faults);
  if (faults.size() != n_before) return std::nullopt;
  return Nvfp4View{.name = weight.name,
                   .rows = weight.rows(),
                   .cols = weight.cols(),
                   .codes = as_u8(weight.bytes),
                   .scales = as_u8(scales->bytes),
                   .tensor_scale = *tensor_scale,
                   .input_scale_inv = input_scale_inv};
}

}  // namespace nibble
