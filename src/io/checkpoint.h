// A model file that has passed its load-time checks, as typed weights. `nibble verify` wants all faults instead, and
// looks at every float: verify_checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "io/fp8_weights.h"
#include "io/gguf.h"
#include "io/lane.h"
#include "io/nvfp4_container.h"
#include "tensor/fp8_view.h"
#include "tensor/nvfp4_view.h"
#include "tensor/tensor_view.h"

namespace nibble {

using WeightView = std::variant<TensorView, Nvfp4View, Fp8View>;

class Checkpoint {
 public:
  // Fails with the first fault: metadata against tensors, and every check of every NVFP4 and FP8 weight. `pool` may be
  // null.
  static Result<Checkpoint> open(const std::string& path, ThreadPool* pool = nullptr);
  static Result<Checkpoint> from_gguf(GgufFile file, ThreadPool* pool = nullptr);

  const GgufFile& file() const { return file_; }
  Contract contract() const { return contract_; }
  const std::vector<Nvfp4View>& nvfp4_weights() const { return nvfp4_; }  // sorted by name
  const std::vector<Fp8View>& fp8_weights() const { return fp8_; }        // likewise

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  // An Nvfp4View or Fp8View for a weight of these types, a TensorView for any other tensor; views live as long as the
  // Checkpoint.
  Result<WeightView> weight(std::string_view name) const;

 private:
  explicit Checkpoint(GgufFile file) : file_(std::move(file)) {}

  GgufFile file_;
  Contract contract_ = Contract::kNc1;
  std::vector<Nvfp4View> nvfp4_;
  std::vector<Fp8View> fp8_;
};

struct CheckReport {
  std::uint64_t n_tensors = 0;
  std::uint64_t n_bytes = 0;         // of tensor data
  std::optional<Lane> lane;          // none: not even the tensors could be listed
  std::optional<Contract> contract;  // none: the file's is not known either, which is a fault
  std::vector<Error> faults;
  bool ok() const { return faults.empty(); }
};

// All faults of an open file (of kMaxFaults or more, the first): the load-time checks, then every float and every block
// scale that is not finite.
// `progress`, if set, hears the bytes checked so far.
CheckReport verify_checkpoint(const GgufFile& file, ThreadPool* pool = nullptr,
                              const std::function<void(std::uint64_t)>& progress = {});

}  // namespace nibble
