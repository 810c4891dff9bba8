// Rows of the block-quantized types of GGUF (contract nk1, section 12) in the layout of QuantRows.
#include "kernels/cuda/linear_common.cuh"

namespace nibble::kernels::cuda {
namespace {

// kNarrow: codes of 4 bits. kSuper: d and m belong to 256 elements, otherwise to each 32.
template <bool kNarrow, bool kSuper, bool kMinimum>
class QuantFormatOnDevice : public A11Format {
 public:
  static constexpr int kSums = kSuper ? 1 : 2, kTerms = kMinimum ? 2 : 1;
  using Sum = int;
  struct Packed {
    int bytes[4];  // code - offset
    int scale;
    int minimum;
  };
  struct Unit {
    float d, m;
  };

  explicit QuantFormatOnDevice(const Rows& rows) : w_(rows) {}
  __host__ __device__ int n_out() const { return w_.n_out; }
  __device__ int n_in() const { return w_.n_in; }
  __device__ int n_sums() const { return w_.n_in / (kSuper ? kBlockColumns : kHalfBlock); }

  __device__ Packed load(int row, int element) const {
    if (element >= w_.n_in) return {};
    const std::size_t group = (static_cast<std::size_t>(row) * w_.n_in + element) / kLaneElements;
    Packed packed = load_codes(group);
    packed.scale = kSuper ? w_.quant.scales[group] : 1;
    packed.minimum = !kMinimum ? 0 : kSuper ? w_.quant.minimums[group] : -1;  // m of blocks of 32 is added
    return packed;
  }
  __device__ Unit unit(int row, int index) const {
    if (index >= n_sums()) return {};
    const int n_units = w_.n_in / (kSuper ? kSuperBlockColumns : kHalfBlock);
    const std::size_t at = static_cast<std::size_t>(row) * n_units + (kSuper ? index / 4 : index);
    return {format::f16_to_f32(w_.quant.d[at]), kMinimum ? format::f16_to_f32(w_.quant.m[at]) : 0.0f};
  }
  __device__ void dot(const Packed& w, const Activations16& q, Sum (&sums)[kTerms]) const {
    sums[0] = dot_bytes(w.bytes, q) * w.scale;
    if constexpr (kMinimum) {
      constexpr int kOnes[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
      sums[1] = dot_bytes(kOnes, q) * w.minimum;
    }
  }
  __device__ Term term(int k, Sum sum, const Unit& unit, float d) const {
    return {__int2float_rn(sum), k == 0 ? unit.d * d : -(unit.m * d)};
  }

 private:
  static constexpr int kHalfBlock = 32;

  __device__ Packed load_codes(std::size_t group) const {
    if constexpr (!kNarrow) {
      const int4 bytes = static_cast<const int4*>(w_.values)[group];
      return {{bytes.x, bytes.y, bytes.z, bytes.w}, 0, 0};
    }
    const uint2 nibbles = static_cast<const uint2*>(w_.values)[group];
    const auto centred = [this](u32 codes) {  // minus the offset in every byte, without a borrow
      return static_cast<int>(((codes & 0x0F0F0F0Fu) + (0x80u - w_.quant.offset) * 0x01010101u) ^ 0x80808080u);
    };
    return {{centred(nibbles.x), centred(nibbles.y), centred(nibbles.x >> 4), centred(nibbles.y >> 4)}, 0, 0};
  }

  Rows w_;
};

template <bool kNarrow, bool kSuper>
cudaError_t launch_minimum(const LinearRowsArgs& a, cudaStream_t stream) {
  const auto run = [&](const auto& format) { return launch_linear(format, a.input, a.bias, a.out, a.n_rows, stream); };
  return a.weights.quant.m != nullptr ? run(QuantFormatOnDevice<kNarrow, kSuper, true>(a.weights))
                                      : run(QuantFormatOnDevice<kNarrow, kSuper, false>(a.weights));
}

}  // namespace

cudaError_t launch_linear_quant(const LinearRowsArgs& a, cudaStream_t stream) {
  const QuantRows& w = a.weights.quant;
  if (w.is_narrow) return w.is_super ? launch_minimum<true, true>(a, stream) : launch_minimum<true, false>(a, stream);
  return w.is_super ? launch_minimum<false, true>(a, stream) : launch_minimum<false, false>(a, stream);
}

}  // namespace nibble::kernels::cuda
