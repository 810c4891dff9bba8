#include "kernels/cuda/canary.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cuda/kernels.h"
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

Status check_digest(const Device& device, Backend& backend) {
  const Status status = check_seam_canary(backend);
  NIBBLE_TRY(backend.made());  // a call that failed is not an arithmetic that differs
  NIBBLE_TRY(backend.fault());
  if (status.ok()) return ok_status();
  return refusal(device, status.error().message, status.error().found, status.error().expected);
}

}  // namespace nibble::kernels::cuda
