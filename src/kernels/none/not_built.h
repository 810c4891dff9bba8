// The answer of a backend that this binary does not have.
#pragma once

#include <string>

#include "base/result.h"

namespace nibble::kernels {

inline Error not_built(const std::string& name, const std::string& reason) {
  return Error{.message = "the " + name + " backend is not built into this binary: " + reason,
               .found = name,
               .expected = "a backend that is built in",
               .hint = "{backend=cpu} gives the same answer"};
}

}  // namespace nibble::kernels
