// A Backend that is measured against, not served: the float oracle (float activations, float attention, weights as
// floats) and the contract oracle (the bits of src/oracle, at a speed that lets whole texts through), chosen by option.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace nibble::kernels {

enum class ReferenceActivations { kFloat, kA11 };
enum class ReferenceAttention { kFloat, kInteger };

struct ReferenceOptions {
  ReferenceActivations activations = ReferenceActivations::kA11;
  ReferenceAttention attention = ReferenceAttention::kInteger;
  // F32 rows are float dots by the contract. For a measurement of the arithmetic alone they may instead take the
  // activations as quantized (q * d), which no weight format's rounding then hides.
  bool quantize_inputs_of_f32_weights = false;
  int n_threads = 1;
};

// Weights that one reference backend made may be used by another, so that several arithmetics share one copy: F32
// weights made with quantize_inputs_of_f32_weights take float or quantized activations as the backend that runs them
// has it.
std::unique_ptr<Backend> make_reference_backend(const ReferenceOptions& options);

}  // namespace nibble::kernels
