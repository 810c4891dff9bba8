// Float activations and float attention, of no contract: what a contract is measured against. Its weights are floats
// (model::WeightForm::kFloat). The registry does not know it, because no answer is made with it.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace nibble::kernels {

std::unique_ptr<Backend> make_float_backend(int n_threads);  // 0: one per hardware thread

}  // namespace nibble::kernels
