// NVFP4 rows by 64-bit integers, for whatever a file may hold.
#include "kernels/cuda/linear_nvfp4_rows.cuh"

namespace nibble::kernels::cuda {
namespace {

class Nvfp4Format : public Nvfp4RowsFormat, public A11Format {
 public:
  using Nvfp4RowsFormat::Nvfp4RowsFormat;
  __device__ int n_sums() const { return padded_columns(w_.n_in) / kBlockColumns; }
  __device__ void dot(const Packed& w, const Activations& q, Sum (&sums)[1]) const {
    sums[0] = static_cast<Sum>(dot_bytes(w.bytes, q)) * w.q9;
  }
  __device__ Term term(int, Sum sum, Unit, float d) const { return {__ll2float_rn(sum), d * w_.g}; }
};

}  // namespace

cudaError_t launch(const LinearNvfp4Args& a, cudaStream_t stream) {
  return launch_linear(Nvfp4Format(a.weights), a.input, a.bias, a.out, a.n_rows, stream);
}

}  // namespace nibble::kernels::cuda
