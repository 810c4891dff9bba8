// nibble inspect: what a model file is and what is in it.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/usage.h"
#include "base/printable.h"
#include "io/checkpoint.h"
#include "io/lane.h"
#include "io/tensor_stats.h"

namespace nibble::apps {
namespace {

using Json = nlohmann::ordered_json;

struct InspectFlags {
  std::string model;
  std::string tensor;
  bool json = false;
};

constexpr std::size_t kArrayPreview = 4;  // elements of a metadata array that are shown

Json value_to_json(const GgufValue& value) {
  if (const auto text = value.as_string()) return printable(*text, 4096);
  if (const auto flag = value.as_bool()) return *flag;
  if (const auto integer = value.as_int()) return *integer;
  if (const auto integer = value.as_uint()) return *integer;
  if (const auto number = value.as_float()) return *number;
  Json preview = Json::array();
  for (const GgufValue& element : value.elements()) {
    if (preview.size() == kArrayPreview) break;
    preview.push_back(value_to_json(element));
  }
  return {{"type", value.type_text()}, {"length", value.size()}, {"first", preview}};
}

double bits_per_element(const TensorView& t) {
  const std::uint64_t n = t.shape.size();
  return n == 0 ? 0 : 8.0 * static_cast<double>(t.bytes.size()) / static_cast<double>(n);
}

Json file_to_json(const Checkpoint& checkpoint) {
  const GgufFile& file = checkpoint.file();
  Json metadata = Json::object();
  for (const GgufEntry& entry : file.metadata()) metadata[printable(entry.key)] = value_to_json(entry.value);
  Json tensors = Json::array();
  for (const TensorView& t : file.tensors()) {
    Json shape = Json::array();
    for (std::size_t i = 0; i < t.shape.rank(); ++i) shape.push_back(t.shape.dim(i));
    tensors.push_back({{"name", printable(t.name)},
                       {"dtype", dtype_name(t.dtype)},
                       {"shape", shape},
                       {"bytes", t.bytes.size()},
                       {"bits_per_weight", bits_per_element(t)}});
  }
  return {{"file", file.path()},
          {"bytes", file.file_bytes()},
          {"format", "gguf"},
          {"version", file.parts().front().version},
          {"parts", file.parts().size()},
          {"lane", lane_name(lane_of(file))},
          {"contract", contract_name(checkpoint.contract())},
          {"metadata", metadata},
          {"tensors", tensors}};
}

void print_file(const Checkpoint& checkpoint) {
  const GgufFile& file = checkpoint.file();
  write_out(fmt::format("{}\nformat    GGUF v{}, {} part{}, {}\nlane      {}\ncontract  {}\n\nmetadata\n", file.path(),
                        file.parts().front().version, file.parts().size(), file.parts().size() == 1 ? "" : "s",
                        human_bytes(file.file_bytes()), lane_name(lane_of(file)),
                        contract_name(checkpoint.contract())));
  for (const GgufEntry& entry : file.metadata()) {
    const Json value = value_to_json(entry.value);
    const std::string text = value.is_object()
                                 ? fmt::format("{} of {}, first {}", value["type"].get<std::string>(),
                                               value["length"].get<std::uint64_t>(), value["first"].dump())
                                 : value.dump();
    write_out(
        fmt::format("  {:44} {}\n", printable(entry.key), text.size() > 120 ? text.substr(0, 117) + "..." : text));
  }
  write_out(fmt::format("\ntensors ({})\n  {:46} {:11} {:>18} {:>11} {:>6}\n", file.tensors().size(), "name", "dtype",
                        "shape", "bytes", "bits"));
  for (const TensorView& t : file.tensors()) {
    write_out(fmt::format("  {:46} {:11} {:>18} {:>11} {:>6.2f}\n", printable(t.name), dtype_name(t.dtype),
                          t.shape.to_string(), t.bytes.size(), bits_per_element(t)));
  }
}

Result<Json> tensor_to_json(const Checkpoint& checkpoint, const std::string& name) {
  NIBBLE_ASSIGN(const TensorView view, checkpoint.file().require_tensor(name));
  NIBBLE_ASSIGN(const WeightView weight, checkpoint.weight(name));
  Json json = {{"name", name},
               {"dtype", dtype_name(view.dtype)},
               {"shape", view.shape.to_string()},
               {"bytes", view.bytes.size()}};
  if (const auto* nvfp4 = std::get_if<Nvfp4View>(&weight)) {
    const Nvfp4Stats stats = nvfp4_stats(*nvfp4);
    json["tensor_scale"] = nvfp4->tensor_scale;
    if (nvfp4->input_scale_inv) json["input_scale_inv"] = *nvfp4->input_scale_inv;
    json["code_counts"] = stats.codes;
    json["scale_exponent_counts"] = stats.scale_exponents;
    json["zero_scales"] = stats.zero_scales;
    json["negative_scales"] = stats.negative_scales;
  }
  NIBBLE_ASSIGN(const FloatStats floats, float_stats(weight));
  json["min"] = floats.min;
  json["max"] = floats.max;
  json["mean"] = floats.mean;
  json["rms"] = floats.rms;
  NIBBLE_ASSIGN(json["first_values"], first_values(weight, 16));
  return json;
}

// A line of a histogram: label, count and a bar relative to the largest.
std::string histogram(const Json& counts, const std::function<std::string(std::size_t)>& label) {
  std::uint64_t most = 1;
  std::uint64_t total = 0;
  for (const Json& count : counts) {
    most = std::max(most, count.get<std::uint64_t>());
    total += count.get<std::uint64_t>();
  }
  std::string text;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto count = counts[i].get<std::uint64_t>();
    text += fmt::format("  {:>8} {:>12} {:5.1f}% {}\n", label(i), count,
                        100.0 * static_cast<double>(count) / static_cast<double>(total),
                        std::string(40 * count / most, '#'));
  }
  return text;
}

void print_tensor(const Json& t) {
  static constexpr const char* kCodes[] = {"0",  "0.5",  "1",  "1.5",  "2",  "3",  "4",  "6",
                                           "-0", "-0.5", "-1", "-1.5", "-2", "-3", "-4", "-6"};
  for (const auto& [key, value] : t.items()) {
    if (!value.is_array())
      write_out(fmt::format("{:16} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump()));
  }
  if (t.contains("code_counts")) {
    write_out("codes\n" + histogram(t["code_counts"], [](std::size_t i) { return std::string(kCodes[i]); }));
    write_out("scales, by exponent\n" + histogram(t["scale_exponent_counts"], [](std::size_t i) {
                return i == 0 ? std::string("subnorm") : fmt::format("2^{}", static_cast<int>(i) - 7);
              }));
  }
  write_out("first values     " + t["first_values"].dump() + "\n");
}

Result<int> inspect(const InspectFlags& flags) {
  NIBBLE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(flags.model));
  if (!flags.tensor.empty()) {
    NIBBLE_ASSIGN(const Json tensor, tensor_to_json(checkpoint, flags.tensor));
    if (flags.json) {
      write_out(tensor.dump(1) + "\n");
    } else {
      print_tensor(tensor);
    }
    return 0;
  }
  if (flags.json) {
    write_out(file_to_json(checkpoint).dump(1) + "\n");
  } else {
    print_file(checkpoint);
  }
  return 0;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Format, lane, contract, metadata and tensors of a model file");
  auto flags = std::make_shared<InspectFlags>();
  add_path(*command, "MODEL", flags->model, "A .gguf file; of a split model the first part")->required();
  add_path(*command, "--tensor", flags->tensor, "One tensor in depth: codes, scales, first values");
  command->add_flag("--json", flags->json, "As JSON");
  return [flags] { return inspect(*flags); };
}

}  // namespace nibble::apps
