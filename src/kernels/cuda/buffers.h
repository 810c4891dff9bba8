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
  CudaBuffer(DeviceMemory m, std::size_t n) : memory(std::move(m)), n_floats(n) {}
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
  DeviceMemory other_q, other_scales;
  QuantizedA16Q8 a16q8;
  QuantizedW4A4 w4a4;  // of one input scale at a time
};

std::unique_ptr<CudaBuffer> make_zeros(std::size_t n_floats, const Stream& stream);
std::unique_ptr<CudaLinearInput> make_quantized_input(int max_rows, int n_in, ActivationFormat format,
                                                      const Stream& stream);

}  // namespace nibble::kernels::cuda
