// Keys and values of one sequence as the contract's integers, in the order in which tensor cores want them.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace nibble::kernels::cuda {

class CudaKvCache final : public KvCache {
 public:
  CudaKvCache(const KvShape& kv_shape, const Stream& stream);

  std::size_t bytes() const override { return keys_.size() + values_.size() + scales_.size(); }
  DeviceRow device_row() const;  // at position 0

 private:
  int capacity_ = 0;  // whole splits
  DeviceMemory keys_, values_, scales_;
};

}  // namespace nibble::kernels::cuda
