// Which tensors a model of a family has, and of what shape; the one list that loading and `nibble verify` go by.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "io/gguf.h"
#include "model/config.h"

namespace nibble::model {

struct TensorSpec {
  std::string name;
  Shape shape;
  Presence presence = Presence::kRequired;
};

std::vector<TensorSpec> tensor_specs(const Config& config);

// Tensors that are missing, of another shape, or that no model of the family has: all of them.
std::vector<Error> check_tensors(const GgufFile& file, const Config& config);

}  // namespace nibble::model
