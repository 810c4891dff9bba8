// Seeded weights and activations of one linear layer, the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "kernels/backend.h"

namespace nibble::measure {

std::vector<std::string> op_formats();  // nvfp4, f16, bf16, fp8, then the block formats of GGUF, q4_0 to q6_k

// An error where the format is unknown or has no row of `k`.
Status check_op_row(const std::string& format, int k);

// Codes of every kind, scales over three octaves (as models have them), finite 16-bit floats of both signs.
class OpWeights {
 public:
  // check_op_row.
  static Result<OpWeights> create(const std::string& format, int n, int k);

  std::size_t bytes() const { return memory_.size(); }
  // The same weights at another address.
  OpWeights copy() const;
  kernels::WeightSource source() const;

 private:
  std::string format_;
  int n_ = 0;
  int k_ = 0;
  AlignedBuffer<std::uint8_t> memory_;  // NVFP4: codes [n, k / 2], scales [n, k / 16]; FP8: f32 scales [n], codes
                                        // [n, k]; otherwise rows as in a file
};

std::vector<float> op_activations(int m, int k);  // [m, k], about normal, an outlier now and then

}  // namespace nibble::measure
