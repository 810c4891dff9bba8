// Weights on the device. Matrices of rows keep the file's values, padded where kernels want whole groups of 16; a table
// that is embedding and head at once lies there once.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear_fp4.h"
#include "kernels/cuda/linear_nvfp4.h"
#include "kernels/cuda/linear_w4a4.h"

namespace nibble::kernels::cuda {

bool has_kernel_for(DType dtype);

struct DeviceRows {
  Rows rows;
  std::optional<Error> not_finite;  // for linear layers
  DeviceMemory values, scales, units, minimums, m;
};

// Packed for tensor cores: of f16, in w4a4 of int8, in native-fp4 of FP4; or as the file has it for the integer
// kernels.
struct DeviceNvfp4 {
  ActivationFormat activations = ActivationFormat::kA11;
  float input_scale_inv = 0;  // w4a4 and native-fp4
  Nvfp4Weights weights;
  Nvfp4Rows rows;
  W4A4Weights w4a4;
  Fp4Weights fp4;
  DeviceMemory packed, codes, scales;

  void drop_rows() {  // once they are packed
    codes = {};
    scales = {};
    rows = {};
  }
};

struct CudaLinear final : Linear {
  std::variant<std::shared_ptr<const DeviceRows>, DeviceNvfp4> form;
};

struct CudaEmbedding final : Embedding {
  std::shared_ptr<const DeviceRows> table;
};

class WeightLoader {
 public:
  WeightLoader(const Stream& stream, bool use_tensor_cores)
      : stream_(stream), use_tensor_cores_(use_tensor_cores), uploader_(stream) {}

  // Refuses what nc1 cannot compute, as every backend does, and what does not fit.
  Result<std::unique_ptr<Linear>> linear(const WeightSource& source);
  Result<std::unique_ptr<Embedding>> embedding(const WeightSource& table);
  // What the layout of these weights takes of the device's memory.
  std::uint64_t bytes_of(const WeightShape& weights) const;
  Uploader& uploader() { return uploader_; }
  // What NVFP4 weights meet from now on.
  void use_activations(ActivationFormat format) { activations_ = format; }

 private:
  Result<DeviceNvfp4> nvfp4(const Nvfp4View& view);
  bool packs() const;  // NVFP4 weights for tensor cores of f16
  bool packs_w4a4() const { return use_tensor_cores_ && activations_ == ActivationFormat::kW4A4; }
  Result<std::shared_ptr<const DeviceRows>> rows(const WeightSource& source);  // not of NVFP4
  Result<std::shared_ptr<const DeviceRows>> try_rows(const TensorView& view);
  Result<std::shared_ptr<const DeviceRows>> try_rows(const Fp8View& view);
  Status copy_rows(const void* from, std::size_t rows, std::size_t row_bytes, std::size_t pitch, DeviceMemory& to);
  Status load_values(const TensorView& view, DeviceRows& to);
  Status load_quant(const TensorView& view, DeviceRows& to);
  Status load_q8(const TensorView& view, DeviceRows& to);
  Status check_values(const TensorView& view, DeviceRows& to);

  Status pack(const Nvfp4View& view, DeviceNvfp4& to);
  Status pack_w4a4(const Nvfp4View& view, DeviceNvfp4& to);
  Status pack_fp4(const Nvfp4View& view, DeviceNvfp4& to);

  const Stream& stream_;
  bool use_tensor_cores_;
  ActivationFormat activations_ = ActivationFormat::kA11;
  Uploader uploader_;
  std::map<const void*, std::weak_ptr<const DeviceRows>> loaded_;  // by address in the file
};

}  // namespace nibble::kernels::cuda
