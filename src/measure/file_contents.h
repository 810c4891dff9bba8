// What a model file holds, of any lane: tensors by kind and type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/gguf.h"

namespace nibble::measure {

// "blk.12.attn_q.weight": layer 12, kind attn_q.
struct TensorPlace {
  std::string kind;
  int layer = -1;  // -1: of no layer
};
TensorPlace place_of(std::string_view tensor_name);

struct TensorGroup {
  std::string kind;
  DType dtype = DType::kF32;
  std::uint64_t n_tensors = 0;
  std::uint64_t n_weights = 0;
  std::uint64_t bytes = 0;  // the scales of NVFP4 weights included

  double bits_per_weight() const {
    return n_weights == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(n_weights);
  }
};
// In the order of the file.
std::vector<TensorGroup> tensor_groups(const GgufFile& file);

}  // namespace nibble::measure
