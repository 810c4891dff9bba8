#include "model/metadata_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/printable.h"

namespace nibble::model {
namespace {

// Of every family: what converters write although a dense causal decoder has nothing of the kind.
constexpr NeutralValue kNeutral[] = {
    {"expert_count", 0},
    {"expert_used_count", 0},
    {"expert_shared_count", 0},
    {"expert_group_count", 0},
    {"expert_group_used_count", 0},
    {"nextn_predict_layers", 0},
    {"pooling_type", 0},
    {"use_parallel_residual", 0},
    {"attention.causal", 1},
    {"attention.scale", 0},
    {"attention.max_alibi_bias", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"rope.dimension_sections", 0},
    {"rope.scaling.yarn_ext_factor", 1},
    {"rope.scaling.yarn_ext_factor", -1},  // not chosen, which is 1
    {"rope.scaling.yarn_attn_factor", 1},
    {"rope.scaling.yarn_log_multiplier", 0},
};

// How a model came to be, and the epsilon of norms that these families do not have.
constexpr std::string_view kUnrelated[] = {"rope.scaling.finetuned", "attention.layer_norm_epsilon"};

std::optional<double> number_of(const GgufValue& value) {
  if (const auto flag = value.as_bool()) return *flag ? 1.0 : 0.0;
  if (const auto integer = value.as_int()) return static_cast<double>(*integer);
  return value.as_float();
}

std::string text_of(const GgufValue& value) {
  if (value.type() == GgufType::kArray) return fmt::format("{} with {} elements", value.type_text(), value.size());
  if (const auto flag = value.as_bool()) return *flag ? "true" : "false";
  if (const auto text = value.as_string()) return fmt::format("\"{}\"", printable(*text));
  if (const auto integer = value.as_uint()) return fmt::format("{}", *integer);
  const auto number = number_of(value);
  return number ? fmt::format("{}", *number) : value.type_text();
}

// An array is neutral where all its elements are.
bool equals(const GgufValue& value, const NeutralValue& neutral) {
  if (value.type() == GgufType::kArray) {
    return std::ranges::all_of(value.elements(), [&](const GgufValue& element) { return equals(element, neutral); });
  }
  return neutral.text.empty() ? number_of(value) == neutral.value : value.as_string() == neutral.text;
}

std::vector<NeutralValue> neutral_values(const Architecture& family, std::string_view key) {
  std::vector<NeutralValue> values;
  for (const auto& known : {std::span<const NeutralValue>(kNeutral), family.neutral_values}) {
    std::ranges::copy_if(known, std::back_inserter(values), [key](const NeutralValue& n) { return n.key == key; });
  }
  return values;
}

bool is_unrelated(const Architecture& family, std::string_view key) {
  return std::ranges::find(kUnrelated, key) != std::end(kUnrelated) ||
         std::ranges::any_of(family.unrelated_prefixes, [key](std::string_view p) { return key.starts_with(p); });
}

Error not_neutral(const std::string& name, const std::string& found, const Architecture& family,
                  const std::vector<NeutralValue>& values) {
  std::string expected = "absent";
  for (const NeutralValue& n : values) {
    expected += n.text.empty() ? fmt::format(" or {}", n.value) : fmt::format(" or \"{}\"", n.text);
  }
  return Error{
      .message = fmt::format("this model needs '{}', which nibble does not implement for {}", name, family.name),
      .key = name,
      .found = found,
      .expected = expected};
}

Error unknown(const std::string& name, const std::string& found, const Architecture& family) {
  return Error{.message = fmt::format("'{}' may change what the model computes, and nibble does not know it", name),
               .key = name,
               .found = found,
               .expected = fmt::format("keys of {} that nibble uses or knows to be without effect", family.name),
               .hint =
                   "a newer nibble may know it; if it has no effect on answers, make a file without it: "
                   "'gguf-new-metadata --remove-metadata KEY IN.gguf OUT.gguf' of the Python package gguf"};
}

}  // namespace

Status check_metadata_keys(const GgufFile& file, const Architecture& family,
                           const std::set<std::string, std::less<>>& read) {
  const std::string prefix = std::string(family.name) + ".";
  for (const GgufEntry& entry : file.metadata()) {
    if (!entry.key.starts_with(prefix) || read.contains(entry.key)) continue;
    const std::string_view key = entry.key.substr(prefix.size());
    if (is_unrelated(family, key)) continue;
    const std::vector<NeutralValue> values = neutral_values(family, key);
    if (std::ranges::any_of(values, [&](const NeutralValue& n) { return equals(entry.value, n); })) continue;
    const std::string name = printable(entry.key), found = text_of(entry.value);
    Error error = values.empty() ? unknown(name, found, family) : not_neutral(name, found, family, values);
    error.file = file.path();
    return error;
  }
  return ok_status();
}

}  // namespace nibble::model
