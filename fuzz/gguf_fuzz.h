// What the fuzz target and the corpus test do with one input: read it as a GGUF file, look at all that it holds.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "io/checkpoint.h"
#include "io/dequantize.h"
#include "io/gguf.h"

namespace nibble::fuzz {

inline void visit_value(const GgufValue& value) {
  (void)value.as_uint();
  (void)value.as_int();
  (void)value.as_float();
  (void)value.as_bool();
  (void)value.as_string();
  (void)value.as_strings();
  (void)value.as_ints();
  (void)value.as_floats();
  (void)value.as_bools();
  (void)value.type_text();
  if (value.type() != GgufType::kArray || gguf_scalar_bytes(value.element_type()) != 0) return;
  for (const GgufValue& element : value.elements()) visit_value(element);
}

inline void visit_tensor(const GgufFile& file, const TensorView& tensor) {
  NIBBLE_CHECK(file.find_tensor(tensor.name) != nullptr, "a tensor that cannot be found by its name");
  (void)file.path_of(tensor);
  if (!can_dequantize(tensor.dtype)) return;
  std::vector<float> row(tensor.cols());
  dequantize_row(tensor, 0, row);
  dequantize_row(tensor, tensor.rows() - 1, row);
}

inline void visit_weight(const auto& weight) {
  std::vector<float> row(weight.cols);
  dequantize_row(weight, 0, row);
  dequantize_row(weight, weight.rows - 1, row);
}

// True when the input is a GGUF file.
inline bool visit_gguf(std::span<const std::byte> input) {
  Result<GgufFile> file = GgufFile::from_memory(input, "fuzz.gguf");
  if (!file.ok()) {
    (void)file.error().to_string();
    return false;
  }
  for (const GgufEntry& entry : file->metadata()) visit_value(entry.value);
  for (const TensorView& tensor : file->tensors()) visit_tensor(*file, tensor);
  const bool verified = verify_checkpoint(*file).ok();
  const Result<Checkpoint> checkpoint = Checkpoint::from_gguf(std::move(*file));
  NIBBLE_CHECK(checkpoint.ok() || !verified, "verified and yet refused");
  if (checkpoint.ok()) {
    for (const Nvfp4View& weight : checkpoint->nvfp4_weights()) visit_weight(weight);
    for (const Fp8View& weight : checkpoint->fp8_weights()) visit_weight(weight);
  }
  return true;
}

}  // namespace nibble::fuzz
