#include "kernels/cuda/buffers.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/cuda/linear_nvfp4.h"

namespace nibble::kernels::cuda {

std::unique_ptr<CudaBuffer> make_zeros(std::size_t n_floats, const Stream& stream) {
  auto buffer = std::make_unique<CudaBuffer>(
      must_allocate(n_floats * sizeof(float), fmt::format("{} floats", n_floats)), n_floats);
  must(cudaMemsetAsync(buffer->data(), 0, n_floats * sizeof(float), stream.get()), "cudaMemsetAsync");
  return buffer;
}

std::unique_ptr<CudaLinearInput> make_quantized_input(int max_rows, int n_in, ActivationFormat format,
                                                      const Stream& stream) {
  NIBBLE_CHECK(max_rows > 0 && n_in > 0, "a linear input has rows and columns");
  const auto rows = static_cast<std::size_t>(max_rows);
  const auto zeros = [&stream](std::size_t bytes) {
    DeviceMemory memory = must_allocate(bytes, "the input of linear layers");
    must(cudaMemsetAsync(memory.as<void>(), 0, bytes, stream.get()), "cudaMemsetAsync");
    return memory;
  };
  const std::size_t columns = padded_columns(n_in), h_stride = nvfp4_padded_inputs(n_in);
  const std::size_t d_stride = nvfp4_d_stride(max_rows);
  auto input = std::make_unique<CudaLinearInput>();
  input->n_in = n_in;
  input->q = zeros(rows * columns * sizeof(std::int16_t));
  input->d = zeros(rows * columns / kBlockColumns * sizeof(float));
  input->h = zeros(rows * h_stride * sizeof(std::uint16_t));
  input->d_columns = zeros(h_stride / kBlockColumns * d_stride * sizeof(float));
  input->handovers = zeros(kNvfp4Handovers * sizeof(std::uint32_t));
  input->quantized = {input->q.as<std::int16_t>(),        input->d.as<float>(),       input->h.as<std::uint16_t>(),
                      input->d_columns.as<float>(),       static_cast<int>(h_stride), static_cast<int>(d_stride),
                      format == ActivationFormat::kNative};
  input->format = format;
  if (format == ActivationFormat::kA16Q8) {
    input->other_q = zeros(rows * super_blocks(n_in) * kSuperBlockColumns);
    input->other_scales = zeros(rows * super_blocks(n_in) * sizeof(float));
    input->a16q8 = {input->other_q.as<std::int8_t>(), input->other_scales.as<float>()};
  } else if (format == ActivationFormat::kW4A4) {
    input->other_q = zeros(rows * n_in);
    input->other_scales = zeros(rows * n_in / kNvfp4Group * sizeof(std::int32_t));
    input->w4a4 = {input->other_q.as<std::int8_t>(), input->other_scales.as<std::int32_t>()};
  }
  return input;
}

}  // namespace nibble::kernels::cuda
