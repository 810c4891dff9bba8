// Which kernel multiplies, and the addresses that it needs.
#include "kernels/cuda/linear_nvfp4_launch.h"

namespace nibble::kernels::cuda {
namespace nvfp4 {
namespace {

template <typename Contract>
Segment resolve(const Nvfp4Segment& segment) {
  const Nvfp4Weights& w = segment.weights;
  const Layout layout = layout_of(w.n_out, w.n_in);
  return {w.packed,
          w.packed + layout.exact_flags,
          reinterpret_cast<const int*>(w.packed + layout.exact_list),
          segment.bias,
          segment.out,
          segment.out_stride,
          w.n_out,
          layout.n_tiles,
          Contract::scale_of(w.tensor_scale)};
}

bool is_valid(const Nvfp4LinearArgs& args) {
  if (args.n_segments < 1 || args.n_segments > kNvfp4MaxSegments || args.input.n_rows < 1) return false;
  for (int s = 0; s < args.n_segments; ++s) {
    if (args.segments[s].weights.n_in != args.input.n_in || args.segments[s].weights.n_out < 1) return false;
  }
  return true;
}

int count_exact_tiles(const Nvfp4LinearArgs& args) {
  int n = 0;
  for (int s = 0; s < args.n_segments; ++s) n += args.segments[s].weights.n_exact_tiles;
  return n;
}

template <typename Contract>
cudaError_t launch_gemv(const Problem& problem, const Device& device, bool only_exact, int n_exact_tiles,
                        cudaStream_t stream) {
  const bool is_one = problem.n_rows == 1 && (!is_nc1_f16<Contract> || n_exact_tiles == 0);
  return is_one ? launch_gemv_one<Contract>(problem, device, only_exact, stream)
                : launch_gemv_rows<Contract>(problem, device, only_exact, stream);
}

// The rest of the tiles after a gemm, which leaves wrong those whose sums f32 cannot hold.
template <typename Contract>
cudaError_t mend_exact_tiles(const Nvfp4LinearArgs& args, Problem problem, const Device& device, cudaStream_t stream) {
  const int n_exact = count_exact_tiles(args);
  for (int s = 0; s < args.n_segments; ++s) problem.segments[s].n_tiles = args.segments[s].weights.n_exact_tiles;
  return n_exact == 0 ? cudaSuccess : launch_gemv<Contract>(problem, device, true, n_exact, stream);
}

template <typename Contract>
cudaError_t multiply(const Nvfp4LinearArgs& args, Problem& problem, const Device& device, cudaStream_t stream) {
  for (int s = 0; s < args.n_segments; ++s) problem.segments[s] = resolve<Contract>(args.segments[s]);
  // Up to there reading the weights twice is faster than a gemm whose tiles have 128 rows.
  constexpr int kMostGemvRows = 2 * kNvfp4GemvRows;
  const bool few_rows = args.input.n_rows <= kMostGemvRows;
  if (args.route == Nvfp4Route::kGemv || (args.route == Nvfp4Route::kAuto && few_rows)) {
    if constexpr (Contract::kFree) {
      return launch_free_gemv(problem, device, stream);
    } else {
      return launch_gemv<Contract>(problem, device, false, count_exact_tiles(args), stream);
    }
  }
  const bool is_hopper = device.capability == 90 && args.route != Nvfp4Route::kGemmMmaSync;
  const cudaError_t error = is_hopper ? launch_gemm_wgmma<Contract>(problem, device, stream)
                                      : launch_gemm_mma<Contract>(problem, device, stream);
  if constexpr (Contract::kFree) {
    return error;
  } else {
    return error != cudaSuccess ? error : mend_exact_tiles<Contract>(args, problem, device, stream);
  }
}

}  // namespace

cudaError_t current_device(Device* device) {
  int id = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&id);
  const auto get = [&](int* value, cudaDeviceAttr attribute) {
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(value, attribute, id);
  };
  get(&device->n_multiprocessors, cudaDevAttrMultiProcessorCount);
  get(&device->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  get(&major, cudaDevAttrComputeCapabilityMajor);
  get(&minor, cudaDevAttrComputeCapabilityMinor);
  device->capability = 10 * major + minor;
  return error;
}

}  // namespace nvfp4

cudaError_t linear_nvfp4(const Nvfp4LinearArgs& args, cudaStream_t stream) {
  using namespace nvfp4;
  if (!is_valid(args)) return cudaErrorInvalidValue;
  Device device;
  const cudaError_t error = current_device(&device);
  if (error != cudaSuccess) return error;
  Problem problem = {reinterpret_cast<const __half*>(args.input.q),
                     args.input.d,
                     args.input.n_rows,
                     args.input.d_stride,
                     nvfp4_padded_inputs(args.input.n_in) / kNvfp4Pair,
                     args.is_spread,
                     args.input.handovers,
                     args.n_segments,
                     {}};
  switch (args.sums) {
    case Nvfp4Sums::kBlocks:
      return multiply<Nc1>(args, problem, device, stream);
    case Nvfp4Sums::kSuperBlocks:
      return multiply<Nc1F16>(args, problem, device, stream);
    case Nvfp4Sums::kFree:
      return multiply<Native>(args, problem, device, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace nibble::kernels::cuda
