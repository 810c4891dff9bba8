// NVFP4 on tiles against the reference: on emulated tiles everywhere, on real ones where the machine has them.
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "kernels/cpu/amx_certificate.h"
#include "kernels/cpu/canary.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/detect.h"
#include "kernels/cpu/nvfp4_tiles.h"
#include "tests/kernels/emulated_amx.h"
#include "tests/kernels/linear_cases.h"

namespace nibble::kernels::test {
namespace {

enum class Blocks { kCertified, kUncertified, kMixed, kWide };

struct Operand {
  std::vector<std::uint8_t> codes, scales;
  Nvfp4View view;
};

std::uint8_t scale_of(Random& random, Blocks blocks, std::size_t block) {
  const int octaves = blocks == Blocks::kUncertified || (blocks == Blocks::kMixed && block % 5 == 0) ? 8
                      : blocks == Blocks::kWide && block % 7 == 0                                    ? 12
                                                                                                     : 1;
  return static_cast<std::uint8_t>((16 + random.below(8 * octaves)) | random.below(2) << 7);
}

Operand make_operand(Random& random, const LinearShape& shape, Blocks blocks) {
  const std::size_t n = static_cast<std::size_t>(shape.n_out) * shape.n_in;
  Operand w{random.bytes(n / 2), std::vector<std::uint8_t>(n / 16), {}};
  for (std::size_t i = 0; i < w.scales.size(); ++i) w.scales[i] = scale_of(random, blocks, i / 4);
  const auto rows = static_cast<std::uint64_t>(shape.n_out), cols = static_cast<std::uint64_t>(shape.n_in);
  w.view = {"w", rows, cols, w.codes, w.scales, 0.0123F, {}};
  return w;
}

// A table of this machine with the gemm on emulated tiles.
cpu::KernelTable table_on(const cpu::EmulatedAmx& emulated, std::string_view isa) {
  cpu::KernelTable table = *cpu::select_isa(isa).value();
  table.linear_nvfp4 = emulated.linear_nvfp4;
  table.wants_certificates = true;
  table.tile_scratch_floats = emulated.scratch_floats;
  return table;
}

const std::vector<std::unique_ptr<Backend>>& tile_backends() {
  static std::vector<cpu::KernelTable> tables;  // outlive the backends
  static const std::vector<std::unique_ptr<Backend>> backends = [] {
    tables.push_back(table_on(cpu::kEmulatedAmxScalar, "scalar"));
    std::vector<std::unique_ptr<Backend>> made;
    for (const std::string_view isa : cpu::isa_names()) {
#if defined(NIBBLE_HAVE_EMULATED_AVX512)
      if (isa == "avx512") tables.push_back(table_on(cpu::kEmulatedAmxAvx512, isa));
#endif
      if (isa == "amx") tables.push_back(*cpu::select_isa(isa).value());
    }
    for (const cpu::KernelTable& table : tables) {
      for (const int n_threads : {1, 3}) made.push_back(cpu::make_backend_of(table, n_threads));
    }
    return made;
  }();
  return backends;
}

void expect_equal(Random& random, const LinearShape& shape, Blocks blocks) {
  const Operand w = make_operand(random, shape, blocks);
  const Kind kind = any_kind(random);
  const std::vector<float> bias = random.floats(shape.n_out, Kind::kGaussian);
  expect_equal_everywhere(w.view, shape, activations(random, shape, kind), random.below(2) == 0 ? bias.data() : nullptr,
                          name_of(shape, kind) + ", blocks " + std::to_string(static_cast<int>(blocks)),
                          tile_backends());
}

constexpr Blocks kAllBlocks[] = {Blocks::kCertified, Blocks::kUncertified, Blocks::kMixed, Blocks::kWide};

TEST(Tiles, EveryNumberOfTokens) {
  Random random(1);
  for (int n_rows = 1; n_rows <= 36; ++n_rows) expect_equal(random, {144, 33, n_rows}, kAllBlocks[n_rows % 4]);
  for (const Blocks blocks : kAllBlocks) {
    for (const int n_rows : {16, 17, 32, 33, 48, 49, 64, 65}) expect_equal(random, {320, 50, n_rows}, blocks);
  }
}

// Beyond what is at hand at once: 512 tokens, 512 rows, 2 blocks.
TEST(Tiles, MoreThanFitsAtOnce) {
  Random random(2);
  for (const Blocks blocks : kAllBlocks) {
    expect_equal(random, {80, 17, 512}, blocks);
    expect_equal(random, {80, 17, 531}, blocks);
    for (const int n_out : {255, 256, 257, 530, 1040}) expect_equal(random, {144, n_out, 21}, blocks);
  }
}

TEST(Tiles, EveryKindOfK) {
  Random random(3);
  for (const Blocks blocks : kAllBlocks) {
    for (const int n_in : {16, 48, 64, 80, 256, 272, 320, 576, 4096}) expect_equal(random, {n_in, 18, 22}, blocks);
  }
}

// Sums as large as a certificate allows, all of one sign, and with every activation at its bound.
TEST(Tiles, LargestCertifiedSums) {
  Random random(4);
  for (const std::uint8_t code : {0x77, 0xFF, 0x66, 0x71}) {
    for (int scale = 8; scale < 40; ++scale) {
      const LinearShape shape{128, 16, 21};
      Operand w = make_operand(random, shape, Blocks::kCertified);
      std::ranges::fill(w.codes, code);
      for (std::size_t i = 0; i < w.scales.size(); ++i) w.scales[i] = i % 4 == 0 ? 9 : static_cast<std::uint8_t>(scale);
      for (const float x : {1.0F, -1.0F}) {
        const std::vector<float> values(static_cast<std::size_t>(shape.n_rows) * shape.n_in, x);
        expect_equal_everywhere(w.view, shape, values, nullptr, "scale " + std::to_string(scale), tile_backends());
      }
    }
  }
}

// The start-up test, which has rows of one octave for the sake of tiles.
TEST(Tiles, SingTheCanary) {
  EXPECT_TRUE(cpu::run_canary(table_on(cpu::kEmulatedAmxScalar, "scalar")).ok());
}

// Against the definition, from the file's bytes: 1055 * sum / (largest power of two that divides all) < 2^24.
TEST(Certificate, IsTheDefinition) {
  Random random(5);
  ThreadPool pool(2);
  int n_certified = 0;
  constexpr int kCases = 600;
  for (int i = 0; i < kCases; ++i) {
    const int octaves = 1 + i % 13;
    std::vector<std::uint8_t> codes = random.bytes(32), scales(4), records(cpu::kRecordBytes), wide(1), certified(1);
    for (std::uint8_t& code : codes) code = i % 3 == 0 ? code & 0x66 : i % 3 == 1 ? code | 0x66 : code;
    for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(16 + random.below(8 * octaves));
    if (i % 5 == 0) scales[i / 5 % 4] = 0;
    cpu::pack_nvfp4_tiles({"w", 1, 64, codes, scales, 1.0F, {}}, 1, pool, records.data(), wide.data());
    cpu::certify_nvfp4_tiles(records.data(), 1, pool, certified.data());
    std::int64_t sum = 0, bits = 0;
    for (int k = 0; k < 64; ++k) {
      const std::int64_t q1 = format::e2m1_x2(codes[k / 2] >> (k % 2 * 4) & 7);
      const std::int64_t product = q1 * format::e4m3_x512(scales[k / 16]);
      sum += product;
      bits |= product;
    }
    const bool expected = bits == 0 || cpu::kPartsBound * (sum / (bits & -bits)) < 1 << 24;
    EXPECT_EQ(certified[0] != 0, expected && wide[0] == 0) << i;
    n_certified += certified[0];
  }
  EXPECT_GT(n_certified, kCases / 5);
  EXPECT_LT(n_certified, kCases * 4 / 5);
}

}  // namespace
}  // namespace nibble::kernels::test
