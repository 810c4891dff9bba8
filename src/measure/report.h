// One HTML page of pictures about a model file: no script, no other file, readable from disk.
#pragma once

#include <span>
#include <string>

#include "measure/facts.h"
#include "measure/tensor_error.h"

namespace nibble::measure {

struct ReportParts {
  std::string title;                          // the model file's name
  std::span<const TensorError> tensors = {};  // error by layer and kind, codes, scales
  bool has_source = false;                    // the tensors' errors were measured
  const Json* quality = nullptr;              // a receipt of `nibble compare`
  const Json* speed = nullptr;                // a receipt of `nibble bench op`
};
// Refuses receipts that are not what they are given for.
Result<std::string> render_report(const ReportParts& parts);

}  // namespace nibble::measure
