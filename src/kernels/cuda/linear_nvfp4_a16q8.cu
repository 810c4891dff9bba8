// NVFP4 rows that meet activations of 8 bits in super-blocks of 256 (contract nc1-f16, section 11), by integers.
#include "kernels/cuda/linear_nvfp4_rows.cuh"

namespace nibble::kernels::cuda {
namespace {

class A16Q8Format : public Nvfp4RowsFormat {
 public:
  using Nvfp4RowsFormat::Nvfp4RowsFormat;
  using Input = QuantizedA16Q8;
  using Activations = int4;
  static constexpr int kBlock = kSuperBlockColumns;
  static constexpr int kSums = 1, kTerms = 1;

  __device__ int n_sums() const { return super_blocks(w_.n_in); }
  __device__ static Activations activations(const Input& input, std::size_t at) {
    return *reinterpret_cast<const int4*>(input.q + at);
  }
  __device__ void dot(const Packed& w, const Activations& q, Sum (&sums)[1]) const {
    sums[0] = static_cast<Sum>(dot_bytes(w.bytes, q)) * w.q9;
  }
  // A super-block of zeros has d = 0 and adds a zero, which is what skipping it does: acc is never -0.
  __device__ Term term(int, Sum sum, Unit, float d) const {
    float t = format::fma_rn(__ll2float_rn(sum), 0x1p-10f, 0.0f);
    t = format::fma_rn(t, d, 0.0f);
    return {format::fma_rn(t, w_.tensor_scale, 0.0f), 1.0f};
  }
  __device__ static float finish(float acc) { return format::f16_to_f32(format::f32_to_f16(acc)); }
};

}  // namespace

cudaError_t launch(const LinearA16Q8Args& a, cudaStream_t stream) {
  return launch_linear(A16Q8Format(a.weights), a.input, a.bias, a.out, a.n_rows, stream);
}

}  // namespace nibble::kernels::cuda
