// NVFP4 rows as the file has them, for kernels that sum integers: a lane takes a group of 16.
#pragma once

#include "format/nvfp4.h"
#include "kernels/cuda/linear_common.cuh"

namespace nibble::kernels::cuda {

// Four codes to four signed bytes q1. A selector nibble of PRMT with its high bit set yields the replicated sign of the
// chosen byte, which is 0 here; so each of two look-ups leaves the codes of one sign and zeros. Tables hold 12 + q1.
__device__ inline int decode4(u32 codes) {
  constexpr u32 kPositiveLow = 0x0F0E0D0C, kPositiveHigh = 0x18141210;  // 12 + 0, 1, 2, 3, 4, 6, 8, 12
  constexpr u32 kNegativeLow = 0x090A0B0C, kNegativeHigh = 0x00040608;  // 12 - the same
  const u32 sum = permute(kPositiveLow, kPositiveHigh, codes) | permute(kNegativeLow, kNegativeHigh, codes ^ 0x8888u);
  return static_cast<int>((sum + 0x74747474u) ^ 0x80808080u);  // minus 12 in every byte, without a borrow
}

// 16 signed bytes of weights and of activations.
__device__ inline int dot_bytes(const int (&a)[4], const int4& b) {
  return __dp4a(a[0], b.x, __dp4a(a[1], b.y, __dp4a(a[2], b.z, __dp4a(a[3], b.w, 0))));
}

class Nvfp4RowsFormat {
 public:
  using Sum = long long;
  struct Packed {
    int bytes[4];  // q1
    int q9;
  };
  struct Unit {};

  __host__ __device__ explicit Nvfp4RowsFormat(const Nvfp4Rows& weights) : w_(weights) {}
  __host__ __device__ int n_out() const { return w_.n_out; }
  __device__ int n_in() const { return w_.n_in; }

  __device__ Packed load(int row, int element) const {
    if (element >= w_.n_in) return {};
    const std::size_t group = (static_cast<std::size_t>(row) * w_.n_in + element) / kLaneElements;
    const uint2 codes = reinterpret_cast<const uint2*>(w_.codes)[group];
    return {{decode4(codes.x & 0xFFFFu), decode4(codes.x >> 16), decode4(codes.y & 0xFFFFu), decode4(codes.y >> 16)},
            format::e4m3_x512(w_.scales[group])};
  }
  __device__ Unit unit(int, int) const { return {}; }

 protected:
  Nvfp4Rows w_;
};

}  // namespace nibble::kernels::cuda
