// NVFP4 linear layers of the contracts nc1-f16 and w4a4 against the oracle: super-blocks of 256 and their tails, and
// groups of activations under scales of their own.
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/detect.h"
#include "kernels/registry.h"
#include "tests/kernels/linear_cases.h"
#include "tests/kernels/oracle_backend.h"

namespace nibble::kernels::test {
namespace {

// Every backend that has the format, and the oracle.
struct Bench {
  std::vector<std::unique_ptr<Backend>> backends;
  std::unique_ptr<Backend> oracle = make_oracle_backend();
};

void add_cpu_backends(Bench& bench) {
  auto plain_loops = make_backend("reference", {.n_threads = 2});
  bench.backends.push_back(std::move(*plain_loops));
  for (const std::string_view isa : cpu::isa_names()) {
    for (const int n_threads : {1, 3}) {
      auto backend = make_cpu_backend({.isa = std::string(isa), .n_threads = n_threads});
      bench.backends.push_back(std::move(*backend));
    }
  }
}

Bench make_bench(ActivationFormat format) {
  Bench bench;
  constexpr BackendForm kRoutes[] = {{true, "auto"}, {false, "gemm"}, {false, "integers"}};
  bench.backends = make_optional_backends(kRoutes);
  if (named_backend() == nullptr) add_cpu_backends(bench);
  for (const auto& backend : bench.backends) EXPECT_TRUE(backend->use_activations(format).ok());
  EXPECT_TRUE(bench.oracle->use_activations(format).ok());
  return bench;
}

// Made once: a backend of a GPU tries its kernels first.
const Bench& bench_of(ActivationFormat format) {
  static const Bench a16q8 = make_bench(ActivationFormat::kA16Q8), w4a4 = make_bench(ActivationFormat::kW4A4);
  return format == ActivationFormat::kA16Q8 ? a16q8 : w4a4;
}

// Those of other linear layers, and K around a super-block.
std::vector<LinearShape> shapes_of_super_blocks() {
  std::vector<LinearShape> out = shapes(16);
  for (const int n_in : {240, 272, 304, 320, 512, 528, 1008}) {
    for (const int n_rows : {1, 2, 4, 9}) out.push_back({n_in, 35, n_rows});
  }
  for (const int n_rows : {127, 128, 129, 257}) out.push_back({n_rows == 128 ? 272 : 80, 17, n_rows});
  out.push_back({14336, 17, 1});
  return out;
}

class LinearFormat : public ::testing::TestWithParam<ActivationFormat> {
 protected:
  const Bench& bench_ = bench_of(GetParam());
  float input_scale_inv_ = 12.5F;

  void expect_equal(Nvfp4Operand& w, const LinearShape& shape, std::span<const float> x, const float* bias,
                    const std::string& what) {
    if (GetParam() == ActivationFormat::kW4A4) w.view.input_scale_inv = input_scale_inv_;
    expect_equal_everywhere(w.view, shape, x, bias, what, bench_.backends, *bench_.oracle);
  }
};

TEST_P(LinearFormat, EqualsTheOracle) {
  Random random(31);
  for (const LinearShape& shape : shapes_of_super_blocks()) {
    for (const Scales scales : {Scales::kLikely, Scales::kAny, Scales::kWideSpread}) {
      const Kind kind = any_kind(random);
      Nvfp4Operand w = make_nvfp4(random, shape, scales, 0.0123F);
      const std::vector<float> bias = random.floats(shape.n_out, Kind::kGaussian);
      expect_equal(w, shape, half_sized(random, shape, kind), random.below(2) == 0 ? bias.data() : nullptr,
                   name_of(shape, kind));
    }
  }
}

TEST_P(LinearFormat, EveryKindOfActivations) {
  Random random(32);
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    for (const int n_rows : {1, 5}) {
      const LinearShape shape{528, 21, n_rows};
      Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 1.0F);
      expect_equal(w, shape, half_sized(random, shape, static_cast<Kind>(kind)), nullptr,
                   name_of(shape, static_cast<Kind>(kind)));
    }
  }
}

// Halfway between two integers of a16q8 (127 is the largest), or two codes of w4a4 (6 is); the first largest is
// negative.
TEST_P(LinearFormat, TiesOfActivations) {
  const bool is_w4a4 = GetParam() == ActivationFormat::kW4A4;
  const std::vector<float> ties =
      is_w4a4 ? std::vector<float>{0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F, 6.0F, 0.0F, 4.0F}
              : std::vector<float>{0.5F, 1.5F, 2.5F, 63.5F, 126.5F, 125.5F, 127.0F, 100.0F, 0.0F, 7.5F};
  input_scale_inv_ = 1.0F;
  Random random(37);
  for (const int n_rows : {1, 5}) {
    const LinearShape shape{320, 33, n_rows};
    Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 1.0F);
    std::vector<float> x(static_cast<std::size_t>(n_rows) * shape.n_in);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float tie =
          i % 16 == 0 ? -*std::ranges::max_element(ties) : ties[random.below(static_cast<int>(ties.size()))];
      x[i] = random.below(2) == 0 ? tie : -tie;
    }
    expect_equal(w, shape, x, nullptr, "ties");
  }
}

// Sums as large as they may be: all codes 6, and the scales of a super-block seven octaves apart.
TEST_P(LinearFormat, OneSignedAtTheBound) {
  Random random(33);
  for (const std::uint8_t code : {0x77, 0xFF}) {
    for (const int low_scale : {7, 8, 15, 16, 71}) {
      for (const int n_rows : {1, 9}) {
        const LinearShape shape{512, 16, n_rows};
        Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 0x1p-20F);
        std::ranges::fill(w.codes, code);
        for (std::size_t i = 0; i < w.scales.size(); ++i) {
          const int high = std::min(low_scale / 8 * 8 + 63, 0x7E);
          w.scales[i] = static_cast<std::uint8_t>(i % 16 == 0 ? low_scale : high);
        }
        const std::vector<float> x(static_cast<std::size_t>(n_rows) * shape.n_in, 1.0F);
        expect_equal(w, shape, x, nullptr, "bound, scale " + std::to_string(low_scale));
      }
    }
  }
}

// A scale far from the others in one of the blocks of a super-block only.
TEST_P(LinearFormat, EverySpreadOfScales) {
  Random random(34);
  for (int spread = 0; spread <= 17; ++spread) {
    for (const bool zero_codes : {false, true}) {
      for (const int n_rows : {1, 4, 6}) {
        const LinearShape shape{592, 35, n_rows};
        Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 0.03F);
        for (std::size_t i = 0; i < w.scales.size(); ++i) {
          const bool is_low = i % 11 == 0;
          const int octave = is_low ? 0 : spread;  // of 2^-9 times a power of two
          const int byte = octave < 3 ? 1 << octave : (octave - 2) << 3 | random.below(7);
          w.scales[i] = static_cast<std::uint8_t>(byte | random.below(2) << 7);
          if (is_low && zero_codes) std::fill_n(w.codes.begin() + 8 * static_cast<std::ptrdiff_t>(i), 8, 0x80);
        }
        expect_equal(w, shape, half_sized(random, shape, Kind::kGaussian), nullptr,
                     "spread " + std::to_string(spread) + (zero_codes ? " of zeros" : ""));
      }
    }
  }
}

// nc1 refuses tensor scales beyond 2^42; the arithmetic of the first lane takes any.
TEST_P(LinearFormat, ZeroScalesAndExtremeTensorScales) {
  Random random(35);
  for (const float tensor_scale : {0x1p-60F, 0x1p-42F, 0x1p+60F, 1.0F}) {
    for (const Scales scales : {Scales::kZeroed, Scales::kAny}) {
      const LinearShape shape{368, 19, 3};
      Nvfp4Operand w = make_nvfp4(random, shape, scales, tensor_scale);
      expect_equal(w, shape, half_sized(random, shape, Kind::kGaussian), nullptr,
                   "tensor scale " + std::to_string(tensor_scale));
    }
  }
}

// The oracle, as the lane that it reproduces, makes numbers of them; nibble reports the row.
TEST_P(LinearFormat, FlagsRowsThatF16DoesNotHold) {
  for (const auto& backend : bench_.backends) {
    std::vector<float> x(std::size_t{5} * 272, 1.0F);
    x[272 + 271] = std::numeric_limits<float>::infinity();
    x[2 * 272] = std::numeric_limits<float>::quiet_NaN();
    x[3 * 272 + 100] = -65520.0F;
    x[4 * 272 + 100] = 65519.0F;
    auto input = backend->make_linear_input(5, 272);
    const auto values = backend->make_vector(x);
    backend->begin_step(5);
    backend->prepare_input(values->data(), 5, *input);
    const auto flags = backend->end_step();
    EXPECT_EQ(std::vector<std::uint8_t>(flags.begin(), flags.end()), (std::vector<std::uint8_t>{0, 1, 1, 1, 0}))
        << backend->description();
  }
}

TEST(LinearFormatW4A4, RefusesWeightsWithoutAnInputScale) {
  Random random(36);
  const Nvfp4Operand w = make_nvfp4(random, {16, 4, 1}, Scales::kLikely, 1.0F);
  for (const auto& backend : bench_of(ActivationFormat::kW4A4).backends) {
    const auto linear = backend->make_linear(w.view);
    ASSERT_FALSE(linear.ok());
    EXPECT_EQ(linear.error().tensor, "w");
    EXPECT_EQ(linear.error().found, "no input scale");
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearFormat, ::testing::Values(ActivationFormat::kA16Q8, ActivationFormat::kW4A4),
                         [](const auto& test) { return std::string(activation_format_name(test.param)); });

}  // namespace
}  // namespace nibble::kernels::test
