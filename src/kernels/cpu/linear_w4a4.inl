// NVFP4 weights that meet NVFP4 activations (contract w4a4, docs/contract.md, section 10). An activation is its code
// times its scale, an integer of 22 bits, held as high * 2048 + low with |high| <= 1344 and |low| <= 1024: two tokens
// to the panels of linear_nvfp4.inl, whose sums stay below 64 * 12 * 1920 * 1344 < 2^31. The sum of a row is an int64.
#pragma once

namespace nibble::kernels::cpu {
namespace {

constexpr int kLowHalf = 1024;  // low lies in [-1024, 1024)

inline void quantize_w4a4_group(const float* x, float input_scale_inv, std::int32_t* integers) {
  const float sixth = format::bits_float(0x3E2AAAABU);
  float halves[16];
  float largest = 0;
  for (int i = 0; i < 16; ++i) {
    halves[i] = format::f16_to_f32(format::f32_to_f16(x[i]));
    const float m = format::abs_value(halves[i]);
    largest = m > largest ? m : largest;
  }
  const float wanted = (largest * sixth) * input_scale_inv;
  const std::uint32_t scale = format::e4m3_encode(wanted < format::kE4m3Max ? wanted : format::kE4m3Max);
  const float s = format::e4m3_decode(scale);
  const int q9 = format::e4m3_x512(scale);
  for (int i = 0; i < 16; ++i) {
    const float m = format::abs_value(halves[i]) * input_scale_inv;
    const int code = (m > s * 0.25F) + (m >= s * 0.75F) + (m > s * 1.25F) + (m >= s * 1.75F) + (m > s * 2.5F) +
                     (m >= s * 3.5F) + (m > s * 5.0F);
    const int integer = format::e2m1_x2(static_cast<format::u32>(code)) * q9;
    integers[i] = format::sign_bit(halves[i]) != 0 ? -integer : integer;
  }
}

void quantize_w4a4(const float* x, int n_in, float input_scale_inv, std::size_t stride, std::int16_t* q) {
  for (int begin = 0; begin < n_in; begin += 64, q += stride) {
    std::int32_t integers[64] = {};
    for (int i = 0; i < 64 && begin + i < n_in; i += 16) {
      quantize_w4a4_group(x + begin + i, input_scale_inv, integers + i);
    }
    for (int i = 0; i < 64; ++i) {
      const std::int32_t low = ((integers[i] + kLowHalf) & (2 * kLowHalf - 1)) - kLowHalf;
      q[i] = static_cast<std::int16_t>((integers[i] - low) / (2 * kLowHalf));
      q[64 + i] = static_cast<std::int16_t>(low);
    }
  }
}

// Sums of kLanes rows over one block, in units of 2^-12: an eighth of a scale's unit is the least unit of a record.
inline void add_w4a4_block(const Nvfp4Format<A11Steps, true>& records, const Nvfp4Weights& w, const RecordPart& part,
                           const Activations& in, std::int64_t* acc /* [n_rows, kLanes] */) {
  Activations planes = in;
  planes.n_rows = 2 * in.n_rows;
  if (records.is_exception(part)) {
    for (int r = 0; r < kLanes; ++r) {
      const int row = part.tile * kTileRows + part.row + r;
      if (row >= w.n_out) continue;
      WideRow<1> wide;
      wide.load(w, row, part.block, part.block + 1);
      for (int t = 0; t < in.n_rows; ++t) {
        const std::int64_t high = wide.dot(planes, 2 * t, part.block, part.block + 1);
        acc[t * kLanes + r] += (high * 2 * kLowHalf + wide.dot(planes, 2 * t + 1, part.block, part.block + 1)) * 8;
      }
    }
    return;
  }
  alignas(64) std::int16_t panel[kPanelSize];
  fold_record(part.line(0), panel);
  const I32V units = records.units(part);
  std::int32_t shifts[kLanes], high[kLanes], low[kLanes];
  __builtin_memcpy(shifts, &units, sizeof shifts);
  for (int t = 0; t < in.n_rows; ++t) {
    I32V sums[2][1] = {{i32_zero()}, {i32_zero()}};
    dot_panels<32>(panel, in.q + 128 * (static_cast<std::size_t>(part.block) * in.n_rows + t), sums);
    __builtin_memcpy(high, &sums[0][0], sizeof high);
    __builtin_memcpy(low, &sums[1][0], sizeof low);
    for (int r = 0; r < kLanes; ++r) {
      acc[t * kLanes + r] += (std::int64_t{high[r]} * 2 * kLowHalf + low[r]) << (shifts[r] >> 23);
    }
  }
}

// q of the activations is [n_blocks, n_rows, 2 planes, 64].
void linear_w4a4(const Nvfp4Weights& w, const Activations& in, const LinearJob& job) {
  const Nvfp4Format<A11Steps, true> records(w, in.n_blocks);
  auto* const acc = reinterpret_cast<std::int64_t*>(job.scratch);  // [n_rows, kLanes]
  for (int row = job.row_begin; row < job.row_end; row += kLanes) {
    for (int i = 0; i < in.n_rows * kLanes; ++i) acc[i] = 0;
    for (int block = 0; block < in.n_blocks; ++block) add_w4a4_block(records, w, records.part(row, block), in, acc);
    for (int t = 0; t < in.n_rows; ++t) {
      for (int r = 0; r < kLanes && row + r < job.row_end; ++r) {
        const float sum = static_cast<float>(acc[t * kLanes + r]) * (0x1p-20F / kUnitScale);
        const float v = (sum * w.tensor_scale) * (1.0F / w.input_scale_inv);
        const float out = format::f16_to_f32(format::f32_to_f16(v));
        job.out[static_cast<std::size_t>(t) * w.n_out + row + r] = job.bias != nullptr ? out + job.bias[row + r] : out;
      }
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
