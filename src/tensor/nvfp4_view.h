// One linear layer's NVFP4 weights. weight = e2m1(code) * e4m3(scale) * tensor_scale, in that order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace nibble {

constexpr std::uint64_t kNvfp4Group = 16;  // codes that share one scale

struct Nvfp4View {
  std::string_view name;
  std::uint64_t rows = 0;                // output neurons
  std::uint64_t cols = 0;                // inputs, a multiple of 16
  std::span<const std::uint8_t> codes;   // [rows, cols / 2]: element 2j is the low nibble of byte j
  std::span<const std::uint8_t> scales;  // [rows, cols / 16]: E4M3 bytes, never NaN
  float tensor_scale = 1.0F;             // finite, positive, a multiplier
  std::optional<float> input_scale_inv;  // W4A4 files: the multiplier that encodes activations

  std::span<const std::uint8_t> row_codes(std::uint64_t row) const { return codes.subspan(row * (cols / 2), cols / 2); }
  std::span<const std::uint8_t> row_scales(std::uint64_t row) const {
    return scales.subspan(row * (cols / kNvfp4Group), cols / kNvfp4Group);
  }
};

}  // namespace nibble
