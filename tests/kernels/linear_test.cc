// Linear layers of every weight type against the reference.
#include <cstring>
#include <limits>
#include <utility>

#include "format/half.h"
#include "tests/kernels/linear_cases.h"

namespace nibble::kernels::test {
namespace {

// --- NVFP4 ---

TEST(LinearNvfp4, EqualsTheReference) {
  Random random(1);
  for (const LinearShape& shape : shapes(16)) {
    for (const Scales scales : {Scales::kLikely, Scales::kAny, Scales::kWideSpread}) {
      const Kind kind = any_kind(random);
      const Nvfp4Operand w = make_nvfp4(random, shape, scales, 0.0123F);
      const std::vector<float> bias = random.floats(shape.n_out, Kind::kGaussian);
      expect_equal_everywhere(w.view, shape, activations(random, shape, kind),
                              random.below(2) == 0 ? bias.data() : nullptr, name_of(shape, kind));
    }
  }
}

// Tiles of output that do not come out even on an emulated GPU of three multiprocessors, twice: flags are left clean.
TEST(LinearNvfp4, TilesThatThreadBlocksShare) {
  Random random(12);
  for (const int n_out : {700, 699}) {
    const LinearShape shape{336, n_out, 40};
    const Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 0.5F);
    const std::vector<float> bias = random.floats(shape.n_out, Kind::kGaussian);
    for (const float* added : {bias.data(), static_cast<const float*>(nullptr)}) {
      expect_equal_everywhere(w.view, shape, activations(random, shape, Kind::kGaussian), added,
                              name_of(shape, Kind::kGaussian));
    }
  }
}

TEST(LinearNvfp4, EveryKindOfActivations) {
  Random random(2);
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    for (const int n_rows : {1, 5}) {
      const LinearShape shape{272, 21, n_rows};
      const Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 1.0F);
      expect_equal_everywhere(w.view, shape, activations(random, shape, static_cast<Kind>(kind)), nullptr,
                              name_of(shape, static_cast<Kind>(kind)));
    }
  }
}

// The largest sums that the int32 route must hold: all codes 6, scales seven octaves apart, activations at their bound.
TEST(LinearNvfp4, OneSignedAtTheBound) {
  Random random(3);
  for (const std::uint8_t code : {0x77, 0xFF}) {
    for (const int low_scale : {7, 8, 15, 16, 71}) {
      for (const int n_rows : {1, 9}) {
        const LinearShape shape{256, 16, n_rows};
        Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 0x1p-42F);
        std::ranges::fill(w.codes, code);
        for (std::size_t i = 0; i < w.scales.size(); ++i) {
          const int high = std::min(low_scale / 8 * 8 + 63, 0x7E);  // mantissa 15, seven octaves up
          w.scales[i] = static_cast<std::uint8_t>(i % 4 == 0 ? low_scale : high);
        }
        const std::vector<float> x(static_cast<std::size_t>(n_rows) * shape.n_in, 1.0F);
        expect_equal_everywhere(w.view, shape, x, nullptr, "bound, scale " + std::to_string(low_scale));
      }
    }
  }
}

TEST(LinearNvfp4, ZeroScalesAndExtremeTensorScales) {
  Random random(4);
  for (const float tensor_scale : {0x1p-42F, 0x1p+42F, 1.0F}) {
    for (const Scales scales : {Scales::kZeroed, Scales::kAny}) {
      const LinearShape shape{112, 19, 3};
      const Nvfp4Operand w = make_nvfp4(random, shape, scales, tensor_scale);
      expect_equal_everywhere(w.view, shape, activations(random, shape, Kind::kGaussian), nullptr,
                              "tensor scale " + std::to_string(tensor_scale));
    }
  }
}

// The factor of a block leaves the range of floats when it takes the unit of a record, while all sums are zero.
TEST(LinearNvfp4, EnormousActivationsWhoseSumsCancel) {
  Random random(11);
  for (const int n_rows : {1, 2, 7}) {
    const LinearShape shape{160, 37, n_rows};
    Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 0x1p+42F);
    std::ranges::fill(w.codes, 0x77);
    std::ranges::fill(w.scales, 0x7E);
    for (float magnitude = 0x1p+80F; magnitude < 0x1p+106F; magnitude *= 2) {
      std::vector<float> x(static_cast<std::size_t>(n_rows) * shape.n_in, magnitude);
      for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -x[i];
      expect_equal_everywhere(w.view, shape, x, nullptr, "enormous");
    }
  }
}

// Octaves between the scales of one block, from none to all fourteen and three of subnormals, of either sign. Beyond
// seven a tile takes the wide route, unless the groups at one end hold zeros only.
TEST(LinearNvfp4, EverySpreadOfScales) {
  Random random(9);
  for (int spread = 0; spread <= 17; ++spread) {
    for (const bool zero_codes : {false, true}) {
      for (const int n_rows : {1, 4}) {
        const LinearShape shape{208, 35, n_rows};
        Nvfp4Operand w = make_nvfp4(random, shape, Scales::kLikely, 0.03F);
        for (std::size_t i = 0; i < w.scales.size(); ++i) {
          const bool is_low = i % 3 == 0;
          const int octave = is_low ? 0 : spread;  // of 2^-9 times a power of two
          const int byte = octave < 3 ? 1 << octave : (octave - 2) << 3 | random.below(7);
          w.scales[i] = static_cast<std::uint8_t>(byte | random.below(2) << 7);
          if (is_low && zero_codes) std::fill_n(w.codes.begin() + 8 * static_cast<std::ptrdiff_t>(i), 8, 0x80);
        }
        expect_equal_everywhere(w.view, shape, activations(random, shape, Kind::kGaussian), nullptr,
                                "spread " + std::to_string(spread) + (zero_codes ? " of zeros" : ""));
      }
    }
  }
}

TEST(LinearNvfp4, BlocksOfZerosAndMisalignedTensors) {
  Random random(10);
  for (const int n_rows : {1, 3, 8}) {
    const LinearShape shape{336, 50, n_rows};
    Nvfp4Operand w = make_nvfp4(random, shape, Scales::kAny, 0.5F);
    for (std::size_t block = 0; block < w.codes.size() / 32; block += 3) {
      std::fill_n(w.codes.begin() + 32 * static_cast<std::ptrdiff_t>(block), 32, block % 2 == 0 ? 0x00 : 0x88);
    }
    w.codes.insert(w.codes.begin(), 3, 0xFF);
    w.scales.insert(w.scales.begin(), 1, 0x7E);
    w.view.codes = std::span<const std::uint8_t>(w.codes).subspan(3);
    w.view.scales = std::span<const std::uint8_t>(w.scales).subspan(1);
    expect_equal_everywhere(w.view, shape, activations(random, shape, Kind::kOutliers), nullptr, "misaligned");
  }
}

TEST(LinearNvfp4, RefusesTensorScalesThatNc1CannotCompute) {
  Random random(5);
  for (const float tensor_scale : {0x1p-43F, 0x1p+43F, 0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    const Nvfp4Operand w = make_nvfp4(random, {16, 4, 1}, Scales::kLikely, tensor_scale);
    for (const auto& backend : all_backends()) {
      const auto linear = backend->make_linear(w.view);
      ASSERT_FALSE(linear.ok());
      EXPECT_EQ(linear.error().tensor, "w");
      EXPECT_NE(linear.error().message.find("tensor scale"), std::string::npos);
    }
  }
}

// --- F16, BF16, F32, Q8_0 ---

struct RowsOperand {
  std::vector<std::uint8_t> bytes;
  TensorView view;
};

TensorView view_of(std::span<const std::uint8_t> bytes, DType dtype, const LinearShape& shape) {
  return {"rows",
          dtype,
          {static_cast<std::uint64_t>(shape.n_in), static_cast<std::uint64_t>(shape.n_out)},
          std::as_bytes(bytes)};
}

RowsOperand make_rows(DType dtype, const LinearShape& shape, std::span<const float> values) {
  RowsOperand w;
  w.bytes.resize(bytes_of(dtype, values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = dtype == DType::kF16 ? format::f32_to_f16(values[i]) : format::f32_to_bf16(values[i]);
    if (dtype == DType::kF32) std::memcpy(w.bytes.data() + 4 * i, &values[i], 4);
    if (dtype != DType::kF32) std::memcpy(w.bytes.data() + 2 * i, &half, 2);
  }
  w.view = view_of(w.bytes, dtype, shape);
  return w;
}

TEST(LinearRows, F16AndBF16AndF32EqualTheReference) {
  Random random(6);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (LinearShape shape : shapes(16)) {
      if (shape.n_rows == 3) shape.n_in += 5;  // these take any K
      const Kind kind_of_weights = any_kind(random), kind = any_kind(random);
      std::vector<float> w = random.floats(static_cast<std::size_t>(shape.n_out) * shape.n_in, kind_of_weights);
      if (kind_of_weights == Kind::kHuge) {
        for (float& value : w) value *= 0x1p-26F;  // the top octaves of f16
      }
      const RowsOperand rows = make_rows(dtype, shape, w);
      const std::vector<float> bias = random.floats(shape.n_out, Kind::kGaussian);
      expect_equal_everywhere(rows.view, shape, activations(random, shape, kind),
                              random.below(2) == 0 ? bias.data() : nullptr,
                              std::string(dtype_name(dtype)) + ", " + name_of(shape, kind));
    }
  }
}

// Subnormal weights, and magnitudes that round up to the next unit.
TEST(LinearRows, EdgesOfTheUnit) {
  Random random(7);
  const LinearShape shape{64, 40, 2};
  std::vector<float> w(static_cast<std::size_t>(shape.n_out) * shape.n_in);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const std::size_t row = i / shape.n_in;
    const float tops[] = {0x1.FFCp+0F, 0x1.FEp+0F, 0x1p+0F, 0x1p-60F, 0x1.8p-24F};
    w[i] = i % 7 == 0 ? tops[row % 5] : random.gaussian() * (row % 5 == 3 ? 0x1p-62F : 0x1p-24F);
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const RowsOperand rows = make_rows(dtype, shape, w);
    expect_equal_everywhere(rows.view, shape, activations(random, shape, Kind::kGaussian), nullptr,
                            "unit edges, " + std::string(dtype_name(dtype)));
  }
}

TEST(LinearRows, RefusesNonFiniteWeights) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> w(std::size_t{3} * 70, 0.5F);
      w.back() = bad;
      const RowsOperand rows = make_rows(dtype, {70, 3, 1}, w);
      for (const auto& backend : all_backends()) {
        const auto linear = backend->make_linear(rows.view);
        ASSERT_FALSE(linear.ok());
        EXPECT_EQ(linear.error().message, "weights are not finite");
        EXPECT_EQ(linear.error().tensor, "rows");
      }
    }
  }
}

TEST(LinearRows, RefusesTypesWithoutAKernel) {
  const std::vector<std::uint8_t> bytes(18);
  const auto linear = all_backends().front()->make_linear(view_of(bytes, DType::kIQ4_NL, {32, 1, 1}));
  ASSERT_FALSE(linear.ok());
  EXPECT_EQ(linear.error().found, "IQ4_NL");
}

TEST(LinearQ8, EqualsTheReference) {
  Random random(8);
  for (const LinearShape& shape : shapes(32)) {
    std::vector<std::uint8_t> bytes = random.bytes(bytes_of(DType::kQ8_0, std::uint64_t(shape.n_out) * shape.n_in));
    for (std::size_t block = 0; block < bytes.size(); block += 34) {
      std::uint16_t scale = format::f32_to_f16(random.gaussian() * 0.01F);
      if (random.below(8) == 0) scale = static_cast<std::uint16_t>(random.below(0x400));  // subnormal or zero
      std::memcpy(bytes.data() + block, &scale, 2);
    }
    const Kind kind = any_kind(random);
    expect_equal_everywhere(view_of(bytes, DType::kQ8_0, shape), shape, activations(random, shape, kind), nullptr,
                            "Q8_0, " + name_of(shape, kind));
  }
}

TEST(LinearInput, FlagsRowsThatAreNotFinite) {
  for (const auto& backend : all_backends()) {
    std::vector<float> x(std::size_t{3} * 80, 1.0F);
    x[80 + 79] = std::numeric_limits<float>::infinity();
    auto input = backend->make_linear_input(3, 80);
    const auto values = backend->make_vector(x);
    backend->begin_step(3);
    backend->prepare_input(values->data(), 3, *input);
    const auto flags = backend->end_step();
    EXPECT_EQ(std::vector<std::uint8_t>(flags.begin(), flags.end()), (std::vector<std::uint8_t>{0, 1, 0}));
  }
}

}  // namespace
}  // namespace nibble::kernels::test
