// What the model keeps on the device besides weights and caches.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace nibble::kernels::cuda {

struct CudaBuffer final : Buffer {
  explicit CudaBuffer(std::size_t n) : n_floats(n) {}
  float* data() override { return memory.as<float>(); }
  std::size_t size() const override { return n_floats; }
  DeviceMemory memory;
  std::size_t n_floats;
};

struct CudaRopeTable final : RopeTable {
  DeviceMemory cos_sin;  // [n_positions, rotary_dim / 2, 2]
};

struct CudaLinearInput final : LinearInput {
  DeviceMemory q, d, h, d_columns, handovers;
  Quantized quantized;
  const float* x = nullptr;  // what was quantized: F32 weights want it as it was

  // What NVFP4 weights want instead of a11.
  ActivationFormat format = ActivationFormat::kA11;
  DeviceMemory other_q, other_scales;  // native-fp4: other_q is in the order of linear_fp4.h
  QuantizedA16Q8 a16q8;
  QuantizedW4A4 w4a4;  // of one input scale at a time
};

// Memory of so many bytes, cleared.
Result<DeviceMemory> make_zeros(std::size_t bytes, const std::string& what, const Stream& stream);
// Memory for up to max_rows rows of input.n_in activations in input.format, as tensor cores want them or integers.
Status allocate_input(CudaLinearInput& input, int max_rows, bool use_tensor_cores, const Stream& stream);

}  // namespace nibble::kernels::cuda
