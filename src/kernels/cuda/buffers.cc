#include "kernels/cuda/buffers.h"

#include <fmt/format.h>

#include <string>

#include "base/check.h"
#include "kernels/cuda/linear_fp4.h"
#include "kernels/cuda/linear_nvfp4.h"
#include "kernels/cuda/linear_w4a4.h"

namespace nibble::kernels::cuda {

Result<DeviceMemory> make_zeros(std::size_t bytes, const std::string& what, const Stream& stream) {
  NIBBLE_ASSIGN(DeviceMemory memory, DeviceMemory::allocate(bytes, what));
  NIBBLE_TRY(check(cudaMemsetAsync(memory.as<void>(), 0, bytes, stream.get()), "cudaMemsetAsync",
                   fmt::format("{} bytes for {}", bytes, what)));
  return memory;
}

Status allocate_input(CudaLinearInput& input, int max_rows, bool use_tensor_cores, const Stream& stream) {
  const int n_in = input.n_in;
  const ActivationFormat format = input.format;
  NIBBLE_CHECK(max_rows > 0 && n_in > 0, "a linear input has rows and columns");
  const auto rows = static_cast<std::size_t>(max_rows);
  const auto zeros = [&stream](std::size_t bytes) { return make_zeros(bytes, "the input of linear layers", stream); };
  const std::size_t columns = padded_columns(n_in), h_stride = nvfp4_padded_inputs(n_in);
  const std::size_t d_stride = nvfp4_d_stride(max_rows);
  NIBBLE_ASSIGN(input.q, zeros(rows * columns * sizeof(std::int16_t)));
  NIBBLE_ASSIGN(input.d, zeros(rows * columns / kBlockColumns * sizeof(float)));
  NIBBLE_ASSIGN(input.h, zeros(rows * h_stride * sizeof(std::uint16_t)));
  NIBBLE_ASSIGN(input.d_columns, zeros(h_stride / kBlockColumns * d_stride * sizeof(float)));
  NIBBLE_ASSIGN(input.handovers, zeros(kNvfp4Handovers * sizeof(std::uint32_t)));
  input.quantized = {input.q.as<std::int16_t>(),         input.d.as<float>(),        input.h.as<std::uint16_t>(),
                     input.d_columns.as<float>(),        static_cast<int>(h_stride), static_cast<int>(d_stride),
                     format == ActivationFormat::kNative};
  if (format == ActivationFormat::kA16Q8 && use_tensor_cores) {
    // In place of a11's, which NVFP4 weights of that contract do not meet.
    input.a16q8 = {.h = input.quantized.h,
                   .d_columns = input.quantized.d_columns,
                   .h_stride = input.quantized.h_stride,
                   .d_stride = input.quantized.d_stride};
  } else if (format == ActivationFormat::kA16Q8) {
    NIBBLE_ASSIGN(input.other_q, zeros(rows * super_blocks(n_in) * kSuperBlockColumns));
    NIBBLE_ASSIGN(input.other_scales, zeros(rows * super_blocks(n_in) * sizeof(float)));
    input.a16q8 = {.q = input.other_q.as<std::int8_t>(), .d = input.other_scales.as<float>()};
  } else if (format == ActivationFormat::kW4A4) {
    const int in_order = use_tensor_cores ? w4a4_blocks(n_in) * kW4A4Block : n_in;
    NIBBLE_ASSIGN(input.other_q, zeros(rows * in_order));
    NIBBLE_ASSIGN(input.other_scales, zeros(rows * in_order / kNvfp4Group * sizeof(std::int32_t)));
    input.w4a4 = {input.other_q.as<std::int8_t>(), input.other_scales.as<std::int32_t>(), in_order, use_tensor_cores};
  } else if (format == ActivationFormat::kNativeFp4) {
    NIBBLE_ASSIGN(input.other_q, zeros(fp4_input_bytes(max_rows, n_in)));
  }
  return ok_status();
}

}  // namespace nibble::kernels::cuda
