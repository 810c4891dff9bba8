// Models in several files: NAME-00001-of-0000N.gguf with the keys split.no (from 0), split.count, split.tensors.count.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "io/gguf.h"

namespace nibble {

// The one file, or all parts of the split model whose first part is `path`, in order.
Result<std::vector<GgufPart>> open_gguf_parts(const std::string& path);

// What all parts are called if `path`, judged by its name alone, is a part of a split model; otherwise `path`.
std::vector<std::string> part_paths(const std::string& path);

// An Error when the part belongs to a split model of more than one file.
Status require_unsplit(const GgufPart& part);

}  // namespace nibble
