// F16 and BF16 rows as integers of 15 bits in two planes of bytes, Q8_0 rows as bytes, E4M3 rows as integers of 18
// bits, F32 rows as float reductions.
#include "format/e4m3.h"
#include "kernels/cuda/linear_common.cuh"

namespace nibble::kernels::cuda {
namespace {

template <RowFormat kFormat>
class Rows16Format : public A11Format {
 public:
  using Sum = int;  // |S| < 2^31; partial sums wrap and come back
  struct Packed {
    int low[4];   // unsigned bytes
    int high[4];  // signed bytes: w_q = 256 * high + low
  };
  using Unit = float;

  explicit Rows16Format(const Rows& rows) : w_(rows) {}
  __host__ __device__ int n_out() const { return w_.n_out; }
  __device__ int n_in() const { return w_.n_in; }
  __device__ int n_sums() const { return n_blocks(); }

  __device__ Packed load(int row, int element) const {
    if (element >= w_.n_in) return {};
    const auto* values =
        static_cast<const std::uint16_t*>(w_.values) + static_cast<std::size_t>(row) * w_.stride + element;
    const uint4 first = reinterpret_cast<const uint4*>(values)[0], second = reinterpret_cast<const uint4*>(values)[1];
    const u32 pairs[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
    // 2^-u: the exponent mirrored at the bias. Stored exponents lie in [75, 241].
    const float inverse = format::bits_float((254u - unit_byte(row, element / kBlockColumns)) << 23);
    Packed packed;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 a = integer(pairs[2 * i] & 0xFFFFu, inverse), b = integer(pairs[2 * i] >> 16, inverse);
      const u32 c = integer(pairs[2 * i + 1] & 0xFFFFu, inverse), d = integer(pairs[2 * i + 1] >> 16, inverse);
      const u32 ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);  // low, low, high, high
      packed.low[i] = static_cast<int>(__byte_perm(ab, cd, 0x5410));
      packed.high[i] = static_cast<int>(__byte_perm(ab, cd, 0x7632));
    }
    return packed;
  }
  __device__ Unit unit(int row, int block) const {
    return format::bits_float(unit_byte(row, block) << 23);
  }
  __device__ void dot(const Packed& w, const Activations16& q, Sum (&sums)[1]) const {
    int low = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low = dot_unsigned_low(q.pairs[2 * i], w.low[i], low);
      low = dot_unsigned_high(q.pairs[2 * i + 1], w.low[i], low);
    }
    sums[0] = 256 * dot_bytes(w.high, q) + low;
  }
  __device__ Term term(int, Sum sum, Unit unit, float d) const {
    return {__int2float_rn(sum), d * unit};
  }

 private:
  __device__ int n_blocks() const {
    return padded_columns(w_.n_in) / kBlockColumns;
  }
  __device__ u32 unit_byte(int row, int block) const {
    return w_.units[static_cast<std::size_t>(row) * n_blocks() + block];
  }
  // w_q in the low 16 bits: those of 1.5 * 2^23 are zero.
  __device__ static u32 integer(u32 bits, float inverse) {
    const float value = kFormat == RowFormat::kBF16 ? format::bf16_to_f32(bits)
                                                    : __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    return format::float_bits(format::fma_rn(value, inverse, 12582912.0f));
  }

  Rows w_;
};

// Two blocks of 32 meet one block of activations.
class Q8Format : public A11Format {
 public:
  static constexpr int kSums = 2;
  using Sum = int;
  struct Packed {
    int bytes[4];
  };
  using Unit = float;

  explicit Q8Format(const Rows& rows) : w_(rows) {}
  __host__ __device__ int n_out() const { return w_.n_out; }
  __device__ int n_in() const { return w_.n_in; }
  __device__ int n_sums() const { return w_.n_in / 32; }

  __device__ Packed load(int row, int element) const {
    if (element >= w_.n_in) return {};
    const auto* codes =
        static_cast<const std::int8_t*>(w_.values) + static_cast<std::size_t>(row) * w_.stride + element;
    const int4 bytes = *reinterpret_cast<const int4*>(codes);
    return {{bytes.x, bytes.y, bytes.z, bytes.w}};
  }
  __device__ Unit unit(int row, int index) const {
    return index < n_sums() ? format::f16_to_f32(w_.scales[static_cast<std::size_t>(row) * n_sums() + index]) : 0.0f;
  }
  __device__ void dot(const Packed& w, const Activations16& q, Sum (&sums)[1]) const {
    sums[0] = dot_bytes(w.bytes, q);
  }
  __device__ Term term(int, Sum sum, Unit unit, float d) const { return {__int2float_rn(sum), d * unit}; }

 private:
  Rows w_;
};

// E4M3: integers in units of 2^-9, whose sum over a block has up to 34 bits.
class Fp8Format : public A11Format {
 public:
  using Sum = long long;
  struct Packed {
    int w[kLaneElements];
  };
  using Unit = float;

  explicit Fp8Format(const Rows& rows) : w_(rows) {}
  __host__ __device__ int n_out() const { return w_.n_out; }
  __device__ int n_in() const { return w_.n_in; }
  __device__ int n_sums() const { return padded_columns(w_.n_in) / kBlockColumns; }

  __device__ Packed load(int row, int element) const {
    if (element >= w_.n_in) return {};
    const auto* codes =
        static_cast<const std::uint8_t*>(w_.values) + static_cast<std::size_t>(row) * w_.stride + element;
    const uint4 bytes = *reinterpret_cast<const uint4*>(codes);
    const u32 words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
    Packed packed;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) packed.w[i] = format::e4m3_x512(words[i / 4] >> (8 * (i % 4)) & 0xFFu);
    return packed;
  }
  __device__ Unit unit(int row, int block) const {
    return w_.g[static_cast<std::size_t>(row) * w_.n_scales + block * kBlockColumns / w_.scale_columns];
  }
  __device__ void dot(const Packed& w, const Activations16& q, Sum (&sums)[1]) const {
    constexpr int kHalf = kLaneElements / 2;
    int half[2] = {};  // 8 * 229,376 * 1,023 < 2^31
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      const int pair = q.pairs[i / 2];
      half[i / kHalf] += w.w[i] * (i % 2 == 0 ? static_cast<std::int16_t>(pair) : pair >> 16);
    }
    sums[0] = static_cast<long long>(half[0]) + half[1];
  }
  __device__ Term term(int, Sum sum, Unit g, float d) const {
    return {__ll2float_rn(sum), d * g};
  }

 private:
  Rows w_;
};

// Section 5: a thread block an output.
__global__ void __launch_bounds__(format::nc1::kReduceLanes) linear_f32_kernel(LinearRowsArgs a) {
  const std::size_t row = blockIdx.x, token = blockIdx.y;
  const float* w = static_cast<const float*>(a.weights.values) + row * a.weights.stride;
  const float* x = a.x + token * a.weights.n_in;
  float lane = 0.0f;
  for (int i = threadIdx.x; i < a.weights.n_in; i += format::nc1::kReduceLanes) lane = format::fma_rn(w[i], x[i], lane);
  const float sum = reduce_lanes(lane);
  if (threadIdx.x == 0) a.out[token * a.weights.n_out + row] = a.bias != nullptr ? sum + a.bias[row] : sum;
}

}  // namespace

cudaError_t launch(const LinearRowsArgs& a, cudaStream_t stream) {
  switch (a.weights.format) {
    case RowFormat::kF16:
      return launch_linear(Rows16Format<RowFormat::kF16>(a.weights), a.input, a.bias, a.out, a.n_rows, stream);
    case RowFormat::kBF16:
      return launch_linear(Rows16Format<RowFormat::kBF16>(a.weights), a.input, a.bias, a.out, a.n_rows, stream);
    case RowFormat::kQ8:
      return launch_linear(Q8Format(a.weights), a.input, a.bias, a.out, a.n_rows, stream);
    case RowFormat::kFp8:
      return launch_linear(Fp8Format(a.weights), a.input, a.bias, a.out, a.n_rows, stream);
    case RowFormat::kQuant:
      return launch_linear_quant(a, stream);
    case RowFormat::kF32:
      break;
  }
  return launch_kernel(linear_f32_kernel, {dim3(a.weights.n_out, a.n_rows), format::nc1::kReduceLanes}, stream, a);
}

}  // namespace nibble::kernels::cuda
