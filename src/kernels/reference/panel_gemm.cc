#include "kernels/reference/panel_gemm.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/reference/vectorize.h"

namespace nibble::kernels::reference {
namespace {

constexpr int kTileTokens = 6;  // 6 x 32 sums fill the registers of AVX-512
constexpr int kActivationBlock = 64;

// What a tile of up to 6 tokens and 32 rows reads; pointers of missing tokens repeat the last.
struct Tile {
  const float* weights;      // [n_blocks * block, 32]
  const float* units;        // [n_blocks, 32]
  const std::uint8_t* wide;  // [n_blocks]
  const float* x[kTileTokens];
  const float* d[kTileTokens];
  int n_blocks;
  int block;
  int n_passes;
};

template <typename Sum>
NIBBLE_INLINE Sum multiply_add(Sum a, Sum b, Sum c) {
  if constexpr (sizeof(Sum) == sizeof(float)) {
    return __builtin_fmaf(a, b, c);
  } else {
    return __builtin_fma(a, b, c);
  }
}

template <typename Sum>
NIBBLE_INLINE void add_block(const Tile& t, int b, float (&acc)[kTileTokens][kPanelRows]) {
  Sum sum[kTileTokens][kPanelRows] = {};
  const float* w = t.weights + static_cast<std::size_t>(b) * t.block * kPanelRows;
  const int first = b / t.n_passes * t.block;  // activation
  for (int k = 0; k < t.block; ++k) {
    for (int i = 0; i < kTileTokens; ++i) {
      const Sum x = t.x[i][first + k];
      for (int j = 0; j < kPanelRows; ++j) sum[i][j] = multiply_add<Sum>(x, w[k * kPanelRows + j], sum[i][j]);
    }
  }
  const float* unit = t.units + static_cast<std::size_t>(b) * kPanelRows;
  for (int i = 0; i < kTileTokens; ++i) {
    const float d = t.d[i][first / kActivationBlock];
    for (int j = 0; j < kPanelRows; ++j) {
      acc[i][j] = __builtin_fmaf(static_cast<float>(sum[i][j]), d * unit[j], acc[i][j]);
    }
  }
}

NIBBLE_VECTORIZED void multiply_tile(const Tile& t, float* out /* [6, 32] */) {
  float acc[kTileTokens][kPanelRows] = {};
  for (int b = 0; b < t.n_blocks; ++b) {
    if (t.wide[b] != 0) {
      add_block<double>(t, b, acc);
    } else {
      add_block<float>(t, b, acc);
    }
  }
  for (int i = 0; i < kTileTokens; ++i) {
    for (int j = 0; j < kPanelRows; ++j) out[i * kPanelRows + j] = acc[i][j];
  }
}

void multiply_panel(const PanelInput& input, const PanelMatrix& w, int panel, const float* bias, float* out) {
  Tile tile{w.panel(panel), w.panel_units(panel), w.panel_wide(panel), {}, {}, w.n_blocks(), w.block(), w.n_passes()};
  const int first_row = panel * kPanelRows;
  const int n_cols = std::min(kPanelRows, w.n_out() - first_row);
  for (int first = 0; first < input.n_rows; first += kTileTokens) {
    for (int i = 0; i < kTileTokens; ++i) {
      const int token = std::min(first + i, input.n_rows - 1);
      tile.x[i] = input.x + static_cast<std::size_t>(token) * input.stride;
      tile.d[i] = input.d + static_cast<std::size_t>(token) * (input.stride / kActivationBlock);
    }
    float result[kTileTokens * kPanelRows];
    multiply_tile(tile, result);
    for (int i = 0; i < std::min(kTileTokens, input.n_rows - first); ++i) {
      float* to = out + static_cast<std::size_t>(first + i) * w.n_out() + first_row;
      for (int j = 0; j < n_cols; ++j) {
        const float y = result[i * kPanelRows + j];
        to[j] = bias != nullptr ? y + bias[first_row + j] : y;
      }
    }
  }
}

}  // namespace

PanelMatrix::PanelMatrix(int n_out, int n_in, int block, int n_passes)
    : n_out_(n_out),
      n_in_(n_in),
      block_(block),
      n_blocks_((n_in + block - 1) / block * n_passes),
      n_passes_(n_passes),
      weights_(std::size_t(n_panels()) * n_blocks_ * block * kPanelRows),
      units_(std::size_t(n_panels()) * n_blocks_ * kPanelRows),
      wide_(std::size_t(n_panels()) * n_blocks_) {}

void multiply(const PanelInput& input, const PanelMatrix& w, const float* bias, float* out, ThreadPool& pool) {
  NIBBLE_CHECK(input.stride >= w.n_blocks() / w.n_passes() * w.block(), "the input is narrower than the weights");
  pool.parallel_for(w.n_panels(), 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t p = begin; p < end; ++p) multiply_panel(input, w, static_cast<int>(p), bias, out);
  });
}

}  // namespace nibble::kernels::reference
