#include "quantize/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "io/dequantize.h"
#include "io/fp8_weights.h"

namespace nibble {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kHead = "output.weight";

Error refuse(const GgufFile& file, const TensorView& tensor, std::string message, std::string expected,
             std::string hint) {
  return Error{.message = std::move(message),
               .file = file.path_of(tensor),
               .tensor = printable(tensor.name),
               .found = fmt::format("{} {}", dtype_name(tensor.dtype), tensor.shape.to_string()),
               .expected = std::move(expected),
               .hint = std::move(hint)};
}

bool is_integer(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 || dtype == DType::kI64;
}

Status check_source(const GgufFile& file) {
  for (const TensorView& tensor : file.tensors()) {
    const DType dtype = tensor.dtype;
    if (dtype == DType::kNVFP4_E2M1 || dtype == DType::kF8_E4M3FN || dtype == DType::kGgmlNVFP4 ||
        is_companion(tensor.name)) {
      const bool is_fp8 = is_fp8_weight(tensor) || tensor.name.ends_with(kFp8ScaleSuffix);
      return refuse(file, tensor,
                    fmt::format("the source model is {} already; quantizing it again would only add error",
                                is_fp8 ? "FP8" : "NVFP4"),
                    "float or k-quant weights", "start from the model that this one was made of");
    }
    if (!can_dequantize(dtype) && !is_integer(dtype)) {
      return refuse(file, tensor, fmt::format("{} has a type that nibble cannot decode", printable(tensor.name)),
                    "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K",
                    "take a version of the model in one of these types, best BF16 or F16");
    }
  }
  return ok_status();
}

// A matrix of a block that multiplies activations. Routers and the small matrices of state-space layers decide more
// than they weigh and stay float.
bool is_linear(const TensorView& tensor) {
  if (tensor.shape.rank() != 2 || !tensor.name.starts_with("blk.") || !tensor.name.ends_with(".weight")) return false;
  for (const std::string_view part : {"norm", "rope_", "gate_inp", "ssm_", "shortconv"}) {
    if (tensor.name.find(part) != std::string_view::npos) return false;
  }
  return true;
}

DType float_type(const TensorView& tensor) {
  if (tensor.shape.rank() < 2) return DType::kF32;  // norms, biases
  return tensor.dtype == DType::kBF16 ? DType::kBF16 : DType::kF16;
}

bool is_attention(const TensorView& tensor) {
  return is_linear(tensor) && tensor_kind(tensor.name).starts_with("attn_");
}

TensorPlan plan_tensor(const TensorView& tensor, AttentionFormat attention) {
  TensorPlan plan{.source = tensor, .name = std::string(tensor.name), .dtype = float_type(tensor), .note = {}};
  if (is_integer(tensor.dtype)) {
    plan.dtype = tensor.dtype;
    plan.verbatim = true;
  } else if (attention == AttentionFormat::kFp8 && is_attention(tensor)) {
    plan.dtype = DType::kF8_E4M3FN;
  } else if (is_linear(tensor)) {
    if (tensor.cols() % kNvfp4Group == 0) {
      plan.dtype = DType::kNVFP4_E2M1;
    } else {
      plan.note = fmt::format("kept {}: its {} inputs are not a multiple of 16", dtype_name(plan.dtype), tensor.cols());
    }
  } else if (tensor.shape.rank() > 2 && tensor.name.starts_with("blk.")) {
    plan.note = fmt::format("kept {}: it is not a matrix", dtype_name(plan.dtype));
  }
  return plan;
}

Result<TensorPlan> plan_head(const GgufFile& file, const TensorView& tensor, HeadFormat head) {
  TensorPlan plan{.source = tensor, .name = std::string(kHead), .dtype = float_type(tensor), .note = {}};
  if (tensor.shape.rank() != 2) {
    return refuse(file, tensor, "the head is not a matrix", "[d_model, vocab_size]", {});
  }
  if (head == HeadFormat::kKeep) {
    plan.dtype = tensor.dtype;
    plan.verbatim = true;
  } else if (head == HeadFormat::kQ8_0) {
    if (tensor.cols() % dtype_info(DType::kQ8_0).block_size != 0) {
      return refuse(file, tensor, "the head cannot be Q8_0", "a multiple of 32 inputs", "choose another head format");
    }
    plan.dtype = DType::kQ8_0;
    plan.verbatim = tensor.dtype == DType::kQ8_0;
  } else if (head == HeadFormat::kFp8) {
    plan.dtype = DType::kF8_E4M3FN;
  } else if (head == HeadFormat::kNvfp4) {
    if (tensor.cols() % kNvfp4Group != 0) {
      return refuse(file, tensor, "the head cannot be NVFP4", "a multiple of 16 inputs", "choose another head format");
    }
    plan.dtype = DType::kNVFP4_E2M1;
  }
  return plan;
}

}  // namespace

Result<std::vector<TensorPlan>> plan_tensors(const GgufFile& source, HeadFormat head, AttentionFormat attention) {
  NIBBLE_TRY(check_source(source));
  std::vector<TensorPlan> plans;
  const bool tied = source.find_tensor(kHead) == nullptr;
  for (const TensorView& tensor : source.tensors()) {
    if (tensor.name == kHead) {
      NIBBLE_ASSIGN(TensorPlan plan, plan_head(source, tensor, head));
      plans.push_back(std::move(plan));
      continue;
    }
    plans.push_back(plan_tensor(tensor, attention));
    if (tensor.name != kEmbedding) continue;
    if (head == HeadFormat::kKeep) {
      plans.back().dtype = tensor.dtype;
      plans.back().verbatim = true;
    } else if (tied && head != HeadFormat::kF16) {
      NIBBLE_ASSIGN(TensorPlan plan, plan_head(source, tensor, head));
      plans.push_back(std::move(plan));
    }
  }
  const auto is_quantized = [](const TensorPlan& plan) { return plan.dtype == DType::kNVFP4_E2M1; };
  if (!std::any_of(plans.begin(), plans.end(), is_quantized)) {
    return Error{.message = "the source has no linear layer that can be NVFP4",
                 .file = source.path(),
                 .expected = "matrices blk.*.weight with a multiple of 16 inputs",
                 .hint = "is this a language model in GGUF?"};
  }
  return plans;
}

std::string tensor_kind(std::string_view name) {
  if (name.starts_with("blk.")) {
    name.remove_prefix(4);
    name.remove_prefix(std::min(name.size(), name.find('.') + 1));
  }
  if (name.ends_with(".weight")) name.remove_suffix(7);
  return std::string(name);
}

}  // namespace nibble
