// One matrix product for every kind of weight: out = sum over blocks of K of fma(f32(S), d * unit, acc), where S is the
// block's sum of weight * x. With small integers held in floats S is exact, and the product is the contract's (section
// 4) for NVFP4, 16-bit and Q8_0 weights; with floats and units of 1 it is a plain float product in blocks.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace nibble::kernels::reference {

constexpr int kPanelRows = 32;

// Weights [n_out, n_in] in panels of 32 rows, both dimensions padded with zeros.
class PanelMatrix {
 public:
  PanelMatrix() = default;
  // block: width of an S, 64 or 32. Each `n_passes` consecutive blocks of weights meet the same block of activations.
  PanelMatrix(int n_out, int n_in, int block, int n_passes = 1);

  int n_out() const { return n_out_; }
  int n_in() const { return n_in_; }
  int block() const { return block_; }
  int n_blocks() const { return n_blocks_; }  // of weights
  int n_passes() const { return n_passes_; }
  int n_panels() const { return (n_out_ + kPanelRows - 1) / kPanelRows; }

  // k counts elements of the blocks of weights.
  float& weight(int row, int k) { return weights_[panel_offset(row) + std::size_t(k) * kPanelRows + row % kPanelRows]; }
  float& unit(int row, int b) { return units_[unit_offset(row, b) + row % kPanelRows]; }
  // Says that S of this row and block may need more than the 24 bits of an f32: its panel takes f64 for the block.
  void needs_double(int row, int b) { wide_[std::size_t(row / kPanelRows) * n_blocks_ + b] = 1; }

  const float* panel(int p) const { return &weights_[panel_offset(p * kPanelRows)]; }
  const float* panel_units(int p) const { return &units_[unit_offset(p * kPanelRows, 0)]; }
  const std::uint8_t* panel_wide(int p) const { return &wide_[std::size_t(p) * n_blocks_]; }

 private:
  std::size_t panel_offset(int row) const { return std::size_t(row / kPanelRows) * n_blocks_ * block_ * kPanelRows; }
  std::size_t unit_offset(int row, int b) const { return (std::size_t(row / kPanelRows) * n_blocks_ + b) * kPanelRows; }

  int n_out_ = 0;
  int n_in_ = 0;
  int block_ = 64;
  int n_blocks_ = 0;
  int n_passes_ = 1;
  AlignedBuffer<float> weights_;      // [n_panels, n_blocks * block, 32]
  AlignedBuffer<float> units_;        // [n_panels, n_blocks, 32]
  AlignedBuffer<std::uint8_t> wide_;  // [n_panels, n_blocks]
};

// Rows of activations, padded with zeros to whole blocks of 64.
struct PanelInput {
  const float* x = nullptr;  // [n_rows, stride]
  const float* d = nullptr;  // [n_rows, stride / 64]: what a block's S is multiplied with, beside the unit
  int n_rows = 0;
  int stride = 0;  // a multiple of 64
};

// out: [n_rows, n_out], bias [n_out] or null.
void multiply(const PanelInput& input, const PanelMatrix& w, const float* bias, float* out, ThreadPool& pool);

}  // namespace nibble::kernels::reference
