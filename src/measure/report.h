// One HTML page of pictures about a model file: no script, no other file, readable from disk.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "measure/facts.h"
#include "measure/file_contents.h"
#include "measure/tensor_error.h"

namespace nibble::measure {

struct ReportParts {
  std::string title;                           // the model file's name
  std::span<const TensorGroup> contents = {};  // of any file: types, sizes, bits per weight
  std::span<const TensorError> tensors = {};   // of its NVFP4 weights: error by layer and kind, codes, scales
  bool has_source = false;                     // the tensors' errors were measured
  const Json* quality = nullptr;               // a receipt of `nibble compare`
  const Json* speed = nullptr;                 // a receipt of `nibble bench op`
};
struct Picture {
  std::string name;  // "bits", "error", "codes", "scales", "kl", "speed": of a file
  std::string title;
  std::string about;
  std::string svg;  // colours come from the page
};
// Both refuse receipts that are not what they are given for.
Result<std::vector<Picture>> report_pictures(const ReportParts& parts);
Result<std::string> render_report(const ReportParts& parts);
// The picture as a file of its own.
std::string standalone(const Picture& picture);

}  // namespace nibble::measure
