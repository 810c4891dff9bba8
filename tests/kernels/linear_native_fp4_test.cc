// Linear layers of contract native-fp4: the bits of a scalar product of NVFP4 with NVFP4, and so of w4a4, where f32
// holds every sum; near it elsewhere; and who refuses it, by name. The kernels have run on the emulation only.
#include <cmath>
#include <limits>

#include "format/half.h"
#include "format/nvfp4.h"
#include "kernels/registry.h"
#include "tests/kernels/linear_cases.h"

namespace nibble::kernels::test {
namespace {

constexpr float kInputScaleInv = 3.0F, kTensorScale = 0.0123F;

class NativeFp4 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (backends_.empty()) GTEST_SKIP() << backends_.refusals();
  }
  BackendsThatTake backends_{all_backends_in_one_form(), ActivationFormat::kNativeFp4};
};

// Sixteen activations as section 10 encodes them: what their codes and scale stand for.
void encode(std::span<const float> x, std::span<double> to) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(format::f16_to_f32(format::f32_to_f16(v))));
  const float sixth = format::bits_float(0x3E2AAAABU);
  const unsigned scale = format::e4m3_encode(std::min((largest * sixth) * kInputScaleInv, 448.0F));
  const float s = format::e4m3_decode(scale);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float half = format::f16_to_f32(format::f32_to_f16(x[i])), m = std::fabs(half) * kInputScaleInv;
    const bool above[] = {m > s * 0.25F, m >= s * 0.75F, m > s * 1.25F, m >= s * 1.75F,
                          m > s * 2.5F,  m >= s * 3.5F,  m > s * 5.0F};
    unsigned code = 0;
    for (const bool is_above : above) code += scale != 0 && is_above ? 1 : 0;
    to[i] = std::copysign(double{format::e2m1_decode(code)} * double{s}, half);
  }
}

struct Expected {
  double sum, magnitude;  // of products; both exact
};
Expected expected(const Nvfp4View& w, std::size_t row, std::span<const double> x) {
  Expected e{0, 0};
  for (std::size_t k = 0; k < w.cols; ++k) {
    const std::size_t at = row * w.cols + k;
    const double value = double{format::e2m1_decode(w.codes[at / 2] >> (4 * (at % 2)) & 15U)} *
                         double{format::e4m3_decode(w.scales[at / 16])};
    e.sum += value * x[k];
    e.magnitude += std::fabs(value * x[k]);
  }
  return e;
}

Nvfp4Operand operand(Random& random, const LinearShape& shape, Scales scales) {
  Nvfp4Operand w = make_nvfp4(random, shape, scales, kTensorScale);
  w.view.input_scale_inv = kInputScaleInv;
  return w;
}

// How many outputs are not what they should be, and how many of all had to be so in every bit.
struct Count {
  int wrong = 0, exact = 0, all = 0;
};
Count compare(const Nvfp4View& w, const LinearShape& shape, std::span<const float> x, const float* bias,
              std::span<const float> got) {
  // Units of 2^-1 * 2^-9 each for codes and scales; a smaller magnitude than 2^24 of them is exact in any order.
  constexpr double kExact = 0x1p24 * 0x1p-20;
  Count count;
  std::vector<double> codes(static_cast<std::size_t>(shape.n_in));
  for (int t = 0; t < shape.n_rows; ++t) {
    for (std::size_t k = 0; k < codes.size(); k += 16) {
      encode(x.subspan(static_cast<std::size_t>(t) * codes.size() + k, 16), std::span(codes).subspan(k, 16));
    }
    for (int r = 0; r < shape.n_out; ++r) {
      const Expected e = expected(w, static_cast<std::size_t>(r), codes);
      const float inverse = 1.0F / kInputScaleInv, sum = (static_cast<float>(e.sum) * kTensorScale) * inverse;
      const float scaled = format::f16_to_f32(format::f32_to_f16(sum));
      const float want = bias != nullptr ? scaled + bias[r] : scaled;
      const float value = got[static_cast<std::size_t>(t) * shape.n_out + r];
      const bool is_exact = e.magnitude < kExact;
      // Sums of up to 64 products with what is there, each of which keeps 24 bits of the largest, and the last steps.
      const double near = (shape.n_in / 16.0 + 32) * 0x1p-19 * e.magnitude * kTensorScale / kInputScaleInv +
                          0x1p-10 * std::fabs(scaled) + 0x1p-21 * std::fabs(want) + 0x1p-24;
      count.wrong += is_exact ? value != want : !(std::fabs(double{value} - want) <= near);
      count.exact += is_exact;
      ++count.all;
    }
  }
  return count;
}

// Scales of one or two small octaves, of either sign and zero, so that sums stay exact.
void make_small(Random& random, Nvfp4Operand& w) {
  for (std::uint8_t& scale : w.scales) {
    scale = static_cast<std::uint8_t>((random.below(7) == 0 ? 0 : random.below(16)) | (random.below(2) << 7));
  }
}

TEST_F(NativeFp4, HasTheBitsOfAScalarProduct) {
  Random random(61);
  std::vector<LinearShape> cases = shapes(16);
  cases.push_back({1168, 371, 7});
  cases.push_back({192, 209, 65});
  cases.push_back({64, 17, 130});
  int n_exact = 0, n_all = 0;
  for (const LinearShape& shape : cases) {
    Nvfp4Operand w = operand(random, shape, Scales::kLikely);
    make_small(random, w);
    std::vector<float> x = random.floats(static_cast<std::size_t>(shape.n_rows) * shape.n_in, Kind::kGaussian);
    for (float& v : x) v *= 0.02F;  // scales of the activations in the lowest octaves, too
    const std::vector<float> b = random.floats(shape.n_out, Kind::kGaussian);
    const float* bias = random.below(2) == 0 ? b.data() : nullptr;
    for (Backend* backend : backends_) {
      const Count count =
          compare(w.view, shape, x, bias, linear_output(*backend, w.view, shape, x, bias, "native-fp4"));
      EXPECT_EQ(count.wrong, 0) << backend->description() << ", " << name_of(shape, Kind::kGaussian);
      n_exact += count.exact;
      n_all += count.all;
    }
  }
  EXPECT_GE(n_exact, n_all * 9 / 10);  // compared in every bit
}

TEST_F(NativeFp4, IsNearItForAllScales) {
  Random random(62);
  for (const LinearShape& shape : {LinearShape{80, 33, 5}, LinearShape{576, 40, 19}, LinearShape{4096, 17, 1}}) {
    for (const Scales scales : {Scales::kAny, Scales::kWideSpread, Scales::kZeroed}) {
      const Kind kind = any_kind(random);
      const Nvfp4Operand w = operand(random, shape, scales);
      const std::vector<float> x = half_sized(random, shape, kind);
      for (Backend* backend : backends_) {
        EXPECT_EQ(
            compare(w.view, shape, x, nullptr, linear_output(*backend, w.view, shape, x, nullptr, "native-fp4")).wrong,
            0)
            << name_of(shape, kind);
      }
    }
  }
}

TEST_F(NativeFp4, FlagsRowsThatF16DoesNotHold) {
  for (Backend* backend : backends_) {
    std::vector<float> x(std::size_t{3} * 80, 1.0F);
    x[80 + 79] = std::numeric_limits<float>::infinity();
    x[2 * 80] = -65520.0F;
    auto input = backend->make_linear_input(3, 80);
    const auto values = backend->make_vector(x);
    backend->begin_step(3);
    backend->prepare_input(values->data(), 3, *input);
    const auto flags = backend->end_step();
    EXPECT_EQ(std::vector<std::uint8_t>(flags.begin(), flags.end()), (std::vector<std::uint8_t>{0, 1, 1}));
  }
}

TEST_F(NativeFp4, WantsAnInputScale) {
  Random random(63);
  for (Backend* backend : backends_) {
    const Nvfp4Operand w = make_nvfp4(random, {64, 16, 1}, Scales::kLikely, 1.0F);
    const auto made = backend->make_linear(w.view);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().tensor, "w");
  }
}

TEST(NativeFp4Refusal, WhoeverHasNoFp4RefusesItByName) {
  for (const char* name : {"cpu", "reference", "cuda"}) {
    const auto backend = make_backend(name, {});
    if (!backend.ok()) continue;
    const Status status = (*backend)->use_activations(ActivationFormat::kNativeFp4);
    if (status.ok()) continue;  // a GPU that has
    EXPECT_NE(status.error().message.find("contract native-fp4 is "), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find(name == std::string("cuda") ? "sm_" : name), std::string::npos);
    EXPECT_NE(status.error().hint.find("{contract="), std::string::npos) << status.error().hint;
    // What it ran before it still does.
    EXPECT_TRUE((*backend)->use_activations(ActivationFormat::kA11).ok());
  }
}

}  // namespace
}  // namespace nibble::kernels::test
