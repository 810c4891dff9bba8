#include "kernels/cuda/canary.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear_fp4.h"
#include "kernels/seam_canary.h"

namespace nibble::kernels::cuda {
namespace {

Error refusal(const Device& device, const std::string& what, std::string found, std::string expected) {
  return Error{
      .message = fmt::format("the cuda kernels cannot keep contract nc1 on {}: {}", device.description(), what),
      .found = std::move(found),
      .expected = std::move(expected),
      .hint = "report it with the output of 'nibble doctor'; {backend=cpu} works meanwhile"};
}

}  // namespace

Status check_tensor_cores(const Device& device, const Stream& stream) {
  constexpr int kTiles = 3 * 132;
  constexpr int kSumsPerTile = 128;
  NIBBLE_ASSIGN(const DeviceMemory count, DeviceMemory::allocate(sizeof(int), "a counter"));
  int n_wrong = 0;
  NIBBLE_TRY(check(cudaMemsetAsync(count.as<void>(), 0, sizeof n_wrong, stream.get()), "cudaMemsetAsync", "a counter"));
  NIBBLE_TRY(
      check(launch(TensorCoreArgs{kTiles, count.as<int>()}, stream.get()), "tensor_core_kernel", "the start-up test"));
  NIBBLE_TRY(check(cudaMemcpyAsync(&n_wrong, count.as<void>(), sizeof n_wrong, cudaMemcpyDeviceToHost, stream.get()),
                   "cudaMemcpyAsync", "a counter"));
  NIBBLE_TRY(stream.wait());
  if (n_wrong == 0) return ok_status();
  return refusal(device, "its tensor cores round sums that are exact in f32",
                 fmt::format("{} of {} sums wrong", n_wrong, kTiles * kSumsPerTile), "none");
}

Status check_fp4(const Device& device, const Stream& stream) {
  constexpr const char* kHint = "use {contract=native}, whose activations are f16; or {contract=nc1}";
  const std::string capability = fmt::format("compute capability {}.{}", device.major, device.minor);
  if (device.major != 12) {
    return Error{.message = fmt::format("contract native-fp4 is about FP4 tensor cores, which {}",
                                        device.major == 10 || device.major == 11
                                            ? "nibble has no kernels for on " + device.description() + " (tcgen05)"
                                            : device.description() + " does not have"),
                 .found = capability,
                 .expected = "compute capability 12.0",
                 .hint = kHint};
  }
  NIBBLE_ASSIGN(const DeviceMemory memory, DeviceMemory::allocate(sizeof(int), "a verdict"));
  int verdict = kFp4Absent;
  NIBBLE_TRY(
      check(cudaMemsetAsync(memory.as<void>(), 0, sizeof verdict, stream.get()), "cudaMemsetAsync", "a verdict"));
  NIBBLE_TRY(check(launch(CheckFp4Args{memory.as<int>()}, stream.get()), "check_fp4", "one product"));
  NIBBLE_TRY(check(cudaMemcpyAsync(&verdict, memory.as<void>(), sizeof verdict, cudaMemcpyDeviceToHost, stream.get()),
                   "cudaMemcpyAsync", "a verdict"));
  NIBBLE_TRY(stream.wait());
  if (verdict == kFp4Right) return ok_status();
  if (verdict == kFp4Absent) {
    return Error{.message = fmt::format("this binary has no FP4 kernels for {}", device.description()),
                 .found = capability,
                 .expected = "kernels for sm_120a, which run on compute capability 12.0 only",
                 .hint = kHint};
  }
  return Error{.message = fmt::format("the FP4 kernels are wrong on {}: a product of known operands differs",
                                      device.description()),
               .found = "another sum",
               .expected = "the sum of the products",
               .hint = "report it with the output of 'nibble doctor'; {contract=native} works meanwhile"};
}

Status check_digest(const Device& device, Backend& backend) {
  const Status status = check_seam_canary(backend);
  NIBBLE_TRY(backend.made());  // a call that failed is not an arithmetic that differs
  NIBBLE_TRY(backend.fault());
  if (status.ok()) return ok_status();
  return refusal(device, status.error().message, status.error().found, status.error().expected);
}

}  // namespace nibble::kernels::cuda
