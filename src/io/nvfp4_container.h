// The native container: NVFP4 in GGUF, each weight T of dtype NVFP4_E2M1 [n_in, n_out] with companion tensors
//   T.nvfp4_scale             F8_E4M3FN [n_in/16, n_out]
//   T.nvfp4_scale2            F32 [1], the tensor scale, a multiplier
//   T.nvfp4_input_scale_inv   F32 [1], optional: the multiplier that encodes activations (W4A4)
// and metadata that says so. docs/formats.md is the reference; io/checkpoint.h loads and verifies.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "io/gguf.h"
#include "tensor/nvfp4_view.h"

namespace nibble {

constexpr std::string_view kScaleSuffix = ".nvfp4_scale";
constexpr std::string_view kTensorScaleSuffix = ".nvfp4_scale2";
constexpr std::string_view kInputScaleSuffix = ".nvfp4_input_scale_inv";

constexpr std::string_view kWeightPrecisionKey = "muser.weight_precision";          // absent, "q4_k_xl", "nvfp4"
constexpr std::string_view kActivationPrecisionKey = "muser.activation_precision";  // absent, "f16", "nvfp4"
constexpr std::string_view kSchemaKey = "muser.nvfp4.schema";
constexpr std::string_view kSchema = "muser.nvfp4-native-gguf.v2";
constexpr std::string_view kArtifactSha256Key = "muser.nvfp4.source_artifact_sha256";
constexpr std::string_view kContractKey = "nibble.contract";  // "nc1", "nk1", "nc1-f16", "w4a4"
constexpr std::string_view kRecipeKey = "nibble.recipe";
constexpr std::string_view kSourceSha256Key = "nibble.source_sha256";

// nc1 multiplies the tensor scale with an activation scale of at least 2^-50; within these bounds that stays normal.
constexpr float kMinTensorScale = 0x1p-42F;
constexpr float kMaxTensorScale = 0x1p+42F;

bool is_nvfp4_companion(std::string_view tensor_name);  // by its suffix

enum class Contract { kNc1, kNk1, kNc1F16, kW4A4, kNative, kNativeFp4 };
constexpr Contract kContracts[] = {Contract::kNc1,  Contract::kNk1,    Contract::kNc1F16,
                                   Contract::kW4A4, Contract::kNative, Contract::kNativeFp4};
// Chosen by who runs a file, and never by the file; they promise no bits.
constexpr bool is_native(Contract contract) {
  return contract == Contract::kNative || contract == Contract::kNativeFp4;
}
std::string_view contract_name(Contract contract);

// By the key nibble.contract; without it nc1-f16 where any muser.* key is declared and some weight is NVFP4, nk1 where
// a weight has a type that nc1 does not compute with, otherwise nc1.
Result<Contract> contract_of(const GgufFile& file);

// A damaged file may have a fault in each of a million tensors; nobody reads more than these.
constexpr std::size_t kMaxFaults = 1000;

// What a file's metadata demands of each of its NVFP4 weights.
struct Nvfp4Rules {
  bool input_scales = false;         // an input scale is announced: each weight has one, otherwise none has
  bool bounded_tensor_scale = true;  // contracts nc1 and nk1
};

// The file's metadata against its tensors: precisions, schema, digests, contract, companions without their weight.
Nvfp4Rules check_nvfp4_metadata(const GgufFile& file, std::vector<Error>& faults);

// Every check of one weight of dtype NVFP4_E2M1; the view only if there was no fault. `pool` may be null.
std::optional<Nvfp4View> check_nvfp4_weight(const GgufFile& file, const TensorView& weight, const Nvfp4Rules& rules,
                                            ThreadPool* pool, std::vector<Error>& faults);

}  // namespace nibble
