// Keys and values of one sequence as the contract's integers, in the order in which tensor cores want them.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace nibble::kernels::cuda {

class CudaKvCache final : public KvCache {
 public:
  explicit CudaKvCache(const KvShape& kv_shape);
  Status allocate(const Stream& stream);
  static std::uint64_t bytes_of(const KvShape& shape);  // that allocate takes

  std::size_t bytes() const override { return keys_.size() + values_.size() + scales_.size(); }
  DeviceRow device_row() const;  // at position 0

 private:
  int capacity_;  // whole splits
  DeviceMemory keys_, values_, scales_;
};

}  // namespace nibble::kernels::cuda
