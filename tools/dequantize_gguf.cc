// dequantize_gguf IN OUT: the same model with every weight as F32, NVFP4 weights included. For comparison with other
// programs, which then compute with exactly the weights that nibble computes with.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/dequantize.h"
#include "io/gguf_writer.h"

namespace nibble {
namespace {

bool is_dropped(std::string_view key) {
  for (const std::string_view prefix : {"quantize.", "split.", "muser.", "nibble."}) {
    if (key.starts_with(prefix)) return true;
  }
  return key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment";
}

bool stays(const TensorView& tensor) {
  return tensor.dtype != DType::kNVFP4_E2M1 && !is_fp8_weight(tensor) && !can_dequantize(tensor.dtype);
}

Status append_tensor(const Checkpoint& checkpoint, const TensorView& tensor, GgufWriter& writer) {
  if (stays(tensor)) return writer.append(tensor.name, tensor.bytes);
  NIBBLE_ASSIGN(const WeightView weight, checkpoint.weight(tensor.name));
  std::vector<float> row(tensor.cols());
  for (std::uint64_t i = 0; i < tensor.rows(); ++i) {
    std::visit([&](const auto& view) { dequantize_row(view, i, row); }, weight);
    NIBBLE_TRY(writer.append(tensor.name, std::as_bytes(std::span(row))));
  }
  return ok_status();
}

Status run(const std::string& in, const std::string& out) {
  NIBBLE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(in));
  const GgufFile& file = checkpoint.file();
  GgufWriter writer;
  for (const GgufEntry& entry : file.metadata()) {
    if (!is_dropped(entry.key)) writer.add_value(entry.key, entry.value);
  }
  writer.add_u32("general.file_type", 0);
  for (const TensorView& tensor : file.tensors()) {
    if (is_companion(tensor.name)) continue;
    writer.declare_tensor(tensor.name, stays(tensor) ? tensor.dtype : DType::kF32, tensor.shape);
  }
  NIBBLE_TRY(writer.begin(out));
  for (const TensorView& tensor : file.tensors()) {
    if (!is_companion(tensor.name)) NIBBLE_TRY(append_tensor(checkpoint, tensor, writer));
  }
  return writer.finish();
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  CLI::App app("Write a GGUF model with every weight as F32");
  std::string in;
  std::string out;
  app.add_option("IN", in, "a GGUF model, NVFP4 or not")->required();
  app.add_option("OUT", out, "the file to write")->required();
  CLI11_PARSE(app, argc, argv);
  const nibble::Status status = nibble::run(in, out);
  if (status.ok()) return 0;
  fmt::print(stderr, "dequantize_gguf: {}\n", status.error().to_string());
  return 1;
}
