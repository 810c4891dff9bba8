// The oracle (src/oracle), called row by row behind the Backend seam: the judge of every other backend. Nothing here is
// arithmetic, and weights and caches are held in the oracle's own types.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace nibble::kernels {

std::unique_ptr<Backend> make_oracle_backend();

}  // namespace nibble::kernels
