#include "kernels/cpu/canary.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "kernels/canary_values.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/weights.h"

namespace nibble::kernels::cpu {
namespace {

std::uint64_t elementary_digest(const KernelTable& table) {
  constexpr int kN = 600;
  CanaryValues values;
  CanaryDigest digest;
  std::vector<float> gate = values.floats(kN), up = values.floats(kN), out(kN);
  for (int i = 0; i < kN; i += 7) gate[i] = gate[i] * 32.0F;  // beyond the clamp as well
  table.silu_mul(gate.data(), up.data(), kN, out.data());
  digest.add(out);
  table.rms_norm(out.data(), up.data(), kN, 1e-5F, out.data());
  digest.add(out);
  table.rope(out.data(), 6, 100, up.data(), 80, false);
  table.rope(out.data(), 6, 100, up.data(), 64, true);
  digest.add(out);
  return digest.value();
}

// The integers of one row of x in the format, as NVFP4 weights meet them.
void quantize_row(const KernelTable& table, ActivationFormat format, const CpuLinear& linear, const float* x,
                  int n_rows, int row, std::int16_t* q, PlaneBlock* planes, float* d) {
  const std::size_t stride = std::size_t{64} * n_rows;
  if (format == ActivationFormat::kW4A4) {
    const float input_scale_inv = std::get<Nvfp4Linear>(linear.form).weights.input_scale_inv;
    table.quantize_w4a4(x, linear.n_in, input_scale_inv, 2 * stride, q + 128 * row);
  } else if (format == ActivationFormat::kA16Q8) {
    table.quantize_a16q8(x, linear.n_in, stride, q + 64 * row, planes + row, d + row);
  } else {
    table.quantize_a11(x, linear.n_in, stride, q + 64 * row, planes + row, d + row);
  }
}

void run_linear(const KernelTable& table, const CpuLinear& linear, int n_rows, CanaryDigest& digest,
                CanaryValues& values, ActivationFormat format = ActivationFormat::kA11) {
  const std::size_t n_blocks = (linear.n_in + 63) / 64;
  std::vector<std::int16_t> q(n_blocks * n_rows * 64 * (format == ActivationFormat::kW4A4 ? 2 : 1));
  std::vector<PlaneBlock> planes(n_blocks * n_rows);
  std::vector<std::int16_t> sums(n_blocks * n_rows * kSumsPerBlock);
  std::vector<float> d(n_blocks * n_rows), x = values.floats(static_cast<std::size_t>(n_rows) * linear.n_in);
  for (int i = 0; i < n_rows; ++i) {
    quantize_row(table, format, linear, x.data() + static_cast<std::size_t>(i) * linear.n_in, n_rows, i, q.data(),
                 planes.data(), d.data());
    table.sum_groups(q.data() + 64 * i, static_cast<int>(n_blocks), 64 * n_rows, sums.data() + kSumsPerBlock * i);
  }
  const Activations in{q.data(), planes.data(), d.data(),    sums.data(),
                       x.data(), n_rows,        linear.n_in, static_cast<int>(n_blocks)};
  std::vector<float> out(static_cast<std::size_t>(n_rows) * linear.n_out);
  AlignedBuffer<float> scratch(
      std::max(linear_scratch_floats(n_rows, linear.n_in / 64 + 1), table.tile_scratch_floats));
  const LinearJob job{nullptr, out.data(), scratch.data(), 0, linear.n_out};
  if (const auto* nvfp4 = std::get_if<Nvfp4Linear>(&linear.form)) {
    const auto run = format == ActivationFormat::kW4A4    ? table.linear_w4a4
                     : format == ActivationFormat::kA16Q8 ? table.linear_nvfp4_a16q8
                                                          : table.linear_nvfp4;
    run(nvfp4->weights, in, job);
  }
  if (const auto* rows16 = std::get_if<Rows16Linear>(&linear.form)) table.linear_rows16(rows16->weights, in, job);
  if (const auto* q8 = std::get_if<Q8Linear>(&linear.form)) table.linear_q8_0(q8->weights, in, job);
  if (const auto* fp8 = std::get_if<Fp8Linear>(&linear.form)) table.linear_fp8(fp8->weights, in, job);
  if (const auto* quant = std::get_if<QuantLinear>(&linear.form))
    table.linear_quant[quant->type](quant->weights, in, job);
  digest.add(out);
}

constexpr int kManyTokens = 33;  // for tiles two groups, the last of one token

std::uint64_t linear_digest(const KernelTable& table) {
  constexpr int kOut = 17, kIn = 80;
  CanaryValues values;
  std::vector<std::uint8_t> codes(kOut * kIn / 2), scales(kOut * kIn / 16);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(values.bits() >> 24);
  for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(40 + (values.bits() >> 26));
  std::vector<std::uint16_t> halves(kOut * kIn);
  for (std::uint16_t& half : halves) half = format::f32_to_f16(values.next());
  ThreadPool pool(1);
  PageArena arena;
  const Nvfp4View view{"canary", kOut, kIn, codes, scales, 0.75F, {}};
  const auto nvfp4 = make_cpu_linear(view, table, pool, arena);
  const auto rows16 = make_cpu_linear(
      TensorView{"canary", DType::kF16, {kIn, kOut}, std::as_bytes(std::span<const std::uint16_t>(halves))}, table,
      pool, arena);
  CanaryDigest digest;
  for (const int n_rows : {1, 3, kMaxGemvTokens + 1}) {
    run_linear(table, static_cast<const CpuLinear&>(**nvfp4), n_rows, digest, values);
    run_linear(table, static_cast<const CpuLinear&>(**rows16), n_rows, digest, values);
  }
  // Many tokens and scales of one octave, which have the certificate that tiles of f32 want (amx_certificate.h).
  for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(56 + (values.bits() >> 29));
  const auto certified = make_cpu_linear(view, table, pool, arena);
  run_linear(table, static_cast<const CpuLinear&>(**certified), kManyTokens, digest, values);
  return digest.value();
}

// NVFP4 weights as nc1-f16 and w4a4 have them: a super-block and a tail, for few tokens and for several.
std::uint64_t lane_digest(const KernelTable& table, ActivationFormat format) {
  constexpr int kOut = 17, kIn = 304;
  CanaryValues values;
  std::vector<std::uint8_t> codes(kOut * kIn / 2), scales(kOut * kIn / 16);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(values.bits() >> 24);
  for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(40 + (values.bits() >> 26));
  ThreadPool pool(1);
  PageArena arena;
  const auto linear =
      make_cpu_linear(Nvfp4View{"canary", kOut, kIn, codes, scales, 0.75F, 12.5F}, table, pool, arena, format);
  CanaryDigest digest;
  for (const int n_rows : {1, 3, kMaxGemvTokens + 1}) {
    run_linear(table, static_cast<const CpuLinear&>(**linear), n_rows, digest, values, format);
  }
  return digest.value();
}

// Random codes under scales of about 2^-9, which every layout has at one of three places of its block.
std::uint64_t quant_digest(const KernelTable& table) {
  constexpr int kOut = 17, kIn = 256;
  constexpr std::pair<DType, std::size_t> kTypes[] = {
      {DType::kQ4_0, 0},  {DType::kQ4_1, 0},   {DType::kQ5_0, 0}, {DType::kQ5_1, 0}, {DType::kQ8_0, 0},
      {DType::kQ2_K, 80}, {DType::kQ3_K, 108}, {DType::kQ4_K, 0}, {DType::kQ5_K, 0}, {DType::kQ6_K, 208}};
  ThreadPool pool(1);
  PageArena arena;
  CanaryValues values;
  CanaryDigest digest;
  for (const auto& [dtype, scales_at] : kTypes) {
    std::vector<std::uint8_t> bytes(bytes_of(dtype, kOut * kIn));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(values.bits() >> 24);
    const std::size_t block = dtype_info(dtype).block_bytes;
    for (std::size_t high = scales_at + 1; high < bytes.size(); high += block) {
      bytes[high] = 0x18;                                    // of the f16 d
      if (high + 2 < bytes.size()) bytes[high + 2] &= 0x9B;  // of m, where one follows: finite and small
    }
    const auto linear =
        make_cpu_linear(TensorView{"canary", dtype, {kIn, kOut}, std::as_bytes(std::span<const std::uint8_t>(bytes))},
                        table, pool, arena);
    for (const int n_rows : {1, 3}) run_linear(table, static_cast<const CpuLinear&>(**linear), n_rows, digest, values);
  }
  return digest.value();
}

// Any codes, so that many are small, under scales of tiles; a tail of K.
std::uint64_t fp8_digest(const KernelTable& table) {
  constexpr int kOut = 17, kIn = 304;
  constexpr float kScales[] = {0.75F, 0.375F, 1.25F};
  CanaryValues values;
  std::vector<std::uint8_t> codes(kOut * kIn);
  for (std::uint8_t& code : codes) {
    code = static_cast<std::uint8_t>(values.bits() >> 24);
    if (format::e4m3_is_nan(code)) code = 0;
  }
  ThreadPool pool(1);
  PageArena arena;
  const Fp8View view{"canary", kOut, kIn, codes, kScales, kFp8Tile, kFp8Tile};
  const auto linear = make_cpu_linear(view, table, pool, arena);
  CanaryDigest digest;
  for (const int n_rows : {1, 3, kMaxGemvTokens + 1}) {
    run_linear(table, static_cast<const CpuLinear&>(**linear), n_rows, digest, values);
  }
  return digest.value();
}

// One query over each of `seen`, [first, end) of 130 keys.
std::uint64_t attention_digest(const KernelTable& table, std::span<const std::pair<int, int>> seen) {
  constexpr int kHeadDim = 80, kKeys = 130;
  CanaryValues values;
  CpuKvCache cache({.n_layers = 1, .n_kv_heads = 1, .head_dim = kHeadDim, .capacity = kKeys});
  std::vector<float> scratch(attention_scratch_floats(kHeadDim)), out(kHeadDim);
  for (int pos = 0; pos < kKeys; ++pos) {
    const std::vector<float> k = values.floats(kHeadDim), v = values.floats(kHeadDim);
    table.store_kv(cache.head_shape(), k.data(), v.data(), scratch.data(), cache.split_of(0, 0, pos),
                   pos % format::nc1::kSplit);
  }
  const ScoreScale scale = score_scale({.n_heads = 1, .n_kv_heads = 1, .head_dim = kHeadDim, .scale = 0.125F});
  const std::vector<float> q = values.floats(kHeadDim);
  CanaryDigest digest;
  for (const auto& [first_key, n_keys] : seen) {
    table.attention({.shape = cache.head_shape(),
                     .n_heads = 1,
                     .q = q.data(),
                     .splits = cache.splits(0, 0),
                     .first_key = first_key,
                     .n_keys = n_keys,
                     .score_scale = scale.c,
                     .score_limit = scale.limit,
                     .out = out.data(),
                     .scratch = scratch.data()});
    digest.add(out);
  }
  return digest.value();
}

constexpr std::pair<int, int> kPrefixes[] = {{0, 1}, {0, 128}, {0, 130}};
constexpr std::pair<int, int> kWindows[] = {{129, 130}, {128, 130}, {101, 130}};

std::uint64_t abilities_digest(const KernelTable& table) {
  constexpr int kN = 600;
  CanaryValues values;
  CanaryDigest digest;
  std::vector<float> gate = values.floats(kN), up = values.floats(kN), out(kN);
  for (int i = 0; i < kN; i += 7) gate[i] = gate[i] * 32.0F;
  table.gelu_mul(gate.data(), up.data(), kN, out.data());
  digest.add(out);
  table.scale(out.data(), 25.298221F, kN);
  digest.add(out);
  return digest.value() ^ attention_digest(table, kWindows);
}

Error refusal(const KernelTable& table, const std::string& what, const std::string& found, const std::string& expected,
              const std::string& hint) {
  return Error{.message = std::string("the ") + table.isa + " kernels cannot keep the contracts here: " + what,
               .found = found,
               .expected = expected,
               .hint = hint};
}

}  // namespace

const CanaryDigests kCanaryDigests = {0x34789e9ddf181367, 0x896dca94d962b010, 0x748564bbf7267186, 0x99969eac82040d61,
                                      0x3eedad80a40749a8, 0x8c7967c2d352e6aa, 0x8d864437adf9bf7f, 0xf22002a66f7a1f7f};

CanaryDigests canary_digests(const KernelTable& table) {
  return {elementary_digest(table),
          linear_digest(table),
          quant_digest(table),
          fp8_digest(table),
          attention_digest(table, kPrefixes),
          abilities_digest(table),
          lane_digest(table, ActivationFormat::kA16Q8),
          lane_digest(table, ActivationFormat::kW4A4)};
}

Status run_canary(const KernelTable& table) {
#if defined(NIBBLE_UNPINNED)
  return ok_status();  // cannot sing; the name of the instruction set says so
#endif
  // volatile: the machine computes, not the compiler.
  volatile float smallest = 0x1p-126F, half = 0.5F, one = 1.0F, ulp_half = 0x1p-24F, ulp_more = 0x1.8p-24F;
  if (smallest * half == 0.0F || (smallest * half) * 2.0F == 0.0F) {
    return refusal(table, "subnormal numbers are flushed to zero", "FTZ or DAZ is set in this thread",
                   "gradual underflow",
                   "a library in this process set it, as builds with relaxed floating point do; run nibble without it");
  }
  if (one + ulp_half != 1.0F || one + ulp_more == 1.0F || -one - ulp_half != -1.0F) {
    return refusal(table, "floats are not rounded to nearest even", "another rounding mode", "FE_TONEAREST",
                   "something called fesetround in this process");
  }
  // (1 + e)^2 - (1 + 2e) is e^2 only if the product is not rounded.
  volatile float a = 1.0F + 0x1p-12F, c = -(1.0F + 0x1p-11F);
  if (table.multiply_add_probe(a, a, c) != 0.0F) {
    return refusal(table, "the compiler contracts a * b + c", "one rounding", "two", "build with -ffp-contract=off");
  }
  const CanaryDigests found = canary_digests(table);
  const auto hex = [](const CanaryDigests& d) {
    std::string text;
    for (const std::uint64_t digest :
         {d.elementary, d.linear, d.quant, d.fp8, d.attention, d.abilities, d.a16q8, d.w4a4}) {
      std::array<char, 20> word = {};
      std::snprintf(word.data(), word.size(), "%016llx", static_cast<unsigned long long>(digest));
      text += (text.empty() ? "" : " ") + std::string(word.data());
    }
    return text;
  };
  if (found != kCanaryDigests) {
    return refusal(table, "results of a small computation differ", hex(found), hex(kCanaryDigests),
                   "report it with the output of 'nibble doctor'; {isa=scalar} may work meanwhile");
  }
  return ok_status();
}

}  // namespace nibble::kernels::cpu
