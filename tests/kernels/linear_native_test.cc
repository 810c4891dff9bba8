// Linear layers of contract native: near the sum in f64, for it promises no bits; what it refuses; and what is still
// the oracle's in every bit.
#include <cmath>
#include <limits>

#include "format/half.h"
#include "format/nvfp4.h"
#include "kernels/registry.h"
#include "tests/kernels/linear_cases.h"

namespace nibble::kernels::test {
namespace {

// The backends of the other tests that have it, which are theirs again afterwards.
class Native : public ::testing::Test {
 protected:
  void SetUp() override {
    if (backends_.empty()) GTEST_SKIP() << backends_.refusals();
  }
  BackendsThatTake backends_{all_backends(), ActivationFormat::kNative};
};

struct Expected {
  double value, tolerance;
};

// The sum in f64 of what the kernels multiply, f16(x) and weights that f16 holds; and how far f32 may be from it.
//
// A matrix instruction adds 16 products to a sum. However it aligns and cuts them, it keeps at least 24 bits of the
// largest, so that 17 terms lose less than 2^-19 of the largest that it meets, which is no more than T, the sum of all
// magnitudes. A sum has n_in / 16 of them at most; groups of one row are scaled and warps are joined by less than 32
// more roundings. Factor and bias round once each.
Expected expected(const Nvfp4View& w, std::size_t row, std::span<const float> x, const float* bias) {
  double sum = 0, magnitude = 0;
  const std::size_t n = w.cols;
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t at = row * n + k;
    const double value = double{format::e2m1_decode(w.codes[at / 2] >> (4 * (at % 2)) & 15U)} *
                         double{format::e4m3_decode(w.scales[at / 16])};
    const double product = value * double{format::f16_to_f32(format::f32_to_f16(x[k]))};
    sum += product;
    magnitude += std::fabs(product);
  }
  const double scale = w.tensor_scale, b = bias != nullptr ? bias[row] : 0;
  const double of_sums = (static_cast<double>(n) / 16 + 32) * 0x1p-19 * magnitude * scale;
  return {sum * scale + b, of_sums + 0x1p-23 * (std::fabs(sum) * scale + std::fabs(b)) + 0x1p-149};
}

// Outputs farther from f64 than their tolerance; a NaN is.
int count_far(const Nvfp4View& w, const LinearShape& shape, std::span<const float> x, const float* bias,
              std::span<const float> got) {
  int far = 0;
  for (int t = 0; t < shape.n_rows; ++t) {
    const auto row = x.subspan(static_cast<std::size_t>(t) * shape.n_in, static_cast<std::size_t>(shape.n_in));
    for (int r = 0; r < shape.n_out; ++r) {
      const Expected want = expected(w, static_cast<std::size_t>(r), row, bias);
      const double value = got[static_cast<std::size_t>(t) * shape.n_out + r];
      far += !(std::fabs(value - want.value) <= want.tolerance);
    }
  }
  return far;
}

TEST_F(Native, IsNearTheSumInF64) {
  Random random(51);
  std::vector<LinearShape> cases = shapes(16);
  for (const int n_rows : {1, 7, 16}) cases.push_back({1168, 371, n_rows});  // four tiles a thread block
  for (const int n_rows : {1, 8}) cases.push_back({32, 16890, n_rows});      // on a large GPU as well
  cases.push_back({192, 209, 129});
  cases.push_back({64, 17, 257});
  for (const LinearShape& shape : cases) {
    for (const Scales scales : {Scales::kLikely, Scales::kAny}) {
      const Kind kind = any_kind(random);
      const Nvfp4Operand w = make_nvfp4(random, shape, scales, 0.0123F);
      const std::vector<float> x = half_sized(random, shape, kind), b = random.floats(shape.n_out, Kind::kGaussian);
      const float* bias = random.below(2) == 0 ? b.data() : nullptr;
      for (Backend* backend : backends_) {
        EXPECT_EQ(count_far(w.view, shape, x, bias, linear_output(*backend, w.view, shape, x, bias, "native")), 0)
            << backend->description() << ", " << name_of(shape, kind);
      }
    }
  }
}

// The tolerance is not one that anything meets: a single code that differs is seen, on every route.
TEST_F(Native, OneWrongCodeIsSeen) {
  Random random(52);
  for (Backend* backend : backends_) {
    for (const int n_rows : {1, 8, 16, 40}) {
      const LinearShape shape{256, 33, n_rows};
      Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 1.0F);
      const std::vector<float> x(static_cast<std::size_t>(n_rows) * shape.n_in, 1.0F);
      const std::vector<float> got = linear_output(*backend, w.view, shape, x, nullptr, "native");
      w.codes[5 * 128 + 77] ^= 0x01;  // of one output of each row
      EXPECT_EQ(count_far(w.view, shape, x, nullptr, got), n_rows) << backend->description();
    }
  }
}

TEST_F(Native, FlagsRowsThatF16DoesNotHold) {
  for (Backend* backend : backends_) {
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
    EXPECT_EQ(std::vector<std::uint8_t>(flags.begin(), flags.end()), (std::vector<std::uint8_t>{0, 1, 1, 1, 0}));
  }
}

TEST_F(Native, OtherWeightsMeetTheActivationsOfNc1) {
  Random random(53);
  for (const LinearShape& shape : {LinearShape{160, 33, 1}, LinearShape{576, 40, 19}}) {
    std::vector<std::uint16_t> rows(static_cast<std::size_t>(shape.n_out) * shape.n_in);
    for (std::uint16_t& value : rows) value = format::f32_to_f16(random.gaussian());
    const TensorView view{"w",
                          DType::kF16,
                          {static_cast<std::uint64_t>(shape.n_in), static_cast<std::uint64_t>(shape.n_out)},
                          std::as_bytes(std::span<const std::uint16_t>(rows))};
    const std::vector<float> x = activations(random, shape, Kind::kGaussian);
    const std::size_t n = static_cast<std::size_t>(shape.n_rows) * shape.n_out;
    const std::vector<float> want = linear_output(reference(), view, shape, x, nullptr, "native");
    for (Backend* backend : backends_) {
      EXPECT_TRUE(same_bits(linear_output(*backend, view, shape, x, nullptr, "native"), want, n, "F16 under native"));
    }
  }
}

TEST(NativeRefusal, OtherBackendsRefuseItByName) {
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = make_backend(name, {});
    ASSERT_TRUE(backend.ok());
    const Status status = (*backend)->use_activations(ActivationFormat::kNative);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find(name), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().hint.find("{backend=cuda}"), std::string::npos) << status.error().hint;
  }
}

}  // namespace
}  // namespace nibble::kernels::test
