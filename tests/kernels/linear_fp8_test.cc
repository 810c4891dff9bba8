// FP8 (E4M3FN) rows against the oracle: every code, the three shapes of scales, both ends of the exponents.
#include <algorithm>
#include <cstring>

#include "format/e4m3.h"
#include "oracle/linear.h"
#include "tests/kernels/linear_cases.h"

namespace nibble::kernels::test {
namespace {

enum class Scale { kTensor, kRow, kTile, kCount };
enum class Codes {
  kAny,     // every byte but NaN
  kLikely,  // those of gaussian weights that a row's scale brings to 448
  kLarge,   // exponents of 4 and more, and zeros: nothing is small
  kSmall,   // the others
  kCount
};

struct Fp8Operand {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  Fp8View view;
};

std::uint8_t random_code(Random& random, Codes kind) {
  const auto byte = static_cast<std::uint8_t>(random.bits());
  switch (kind) {
    case Codes::kLikely:
      return format::e4m3_encode(random.gaussian() * 100);
    case Codes::kLarge:
      if (random.below(4) == 0) return byte & 0x80;
      return format::e4m3_is_nan(byte | 0x20) ? 0x7E : byte | 0x20;
    case Codes::kSmall:
      return byte & 0x9F;
    default:
      return format::e4m3_is_nan(byte) ? byte & 0xFE : byte;
  }
}

Fp8Operand make_fp8(Random& random, const LinearShape& shape, Codes codes, Scale scale) {
  Fp8Operand w;
  const auto n_out = static_cast<std::uint64_t>(shape.n_out), n_in = static_cast<std::uint64_t>(shape.n_in);
  w.codes.resize(n_out * n_in);
  for (std::uint8_t& code : w.codes) code = random_code(random, codes);
  w.view = {.name = "w", .rows = n_out, .cols = n_in, .codes = w.codes, .scales = {}};
  w.view.scale_rows = scale == Scale::kTensor ? n_out : scale == Scale::kRow ? 1 : kFp8Tile;
  w.view.scale_cols = scale == Scale::kTile ? kFp8Tile : n_in;
  const auto tiles = [](std::uint64_t n, std::uint64_t extent) { return (n + extent - 1) / extent; };
  w.scales.resize(tiles(n_out, w.view.scale_rows) * tiles(n_in, w.view.scale_cols));
  for (float& s : w.scales) s = 0.001F + std::abs(random.gaussian());
  w.view.scales = w.scales;
  return w;
}

std::string name_of(const LinearShape& shape, Kind kind, Codes codes, Scale scale) {
  return name_of(shape, kind) + ", codes " + std::to_string(static_cast<int>(codes)) + ", scale " +
         std::to_string(static_cast<int>(scale));
}

TEST(LinearFp8, EqualsTheReference) {
  Random random(1);
  for (LinearShape shape : shapes(16)) {
    if (shape.n_rows % 2 != 0) shape.n_in += 5;  // any K
    const Codes codes = static_cast<Codes>(random.below(static_cast<int>(Codes::kCount)));
    const Scale scale = static_cast<Scale>(random.below(static_cast<int>(Scale::kCount)));
    const Kind kind = any_kind(random);
    const Fp8Operand w = make_fp8(random, shape, codes, scale);
    const std::vector<float> bias = random.floats(shape.n_out, Kind::kGaussian);
    expect_equal_everywhere(w.view, shape, activations(random, shape, kind),
                            random.below(2) == 0 ? bias.data() : nullptr, name_of(shape, kind, codes, scale),
                            all_backends_in_one_form());
  }
}

// Every pair of what codes and scales can be, for one token, for few and for several.
TEST(LinearFp8, EveryKindOfCodesAndScales) {
  Random random(2);
  for (int codes = 0; codes < static_cast<int>(Codes::kCount); ++codes) {
    for (int scale = 0; scale < static_cast<int>(Scale::kCount); ++scale) {
      for (const int n_rows : {1, 3, 9}) {
        const LinearShape shape{n_rows == 3 ? 200 : 448, n_rows == 9 ? 150 : 40, n_rows};
        const Fp8Operand w = make_fp8(random, shape, static_cast<Codes>(codes), static_cast<Scale>(scale));
        expect_equal_everywhere(w.view, shape, activations(random, shape, Kind::kOutliers), nullptr,
                                name_of(shape, Kind::kOutliers, static_cast<Codes>(codes), static_cast<Scale>(scale)),
                                all_backends_in_one_form());
      }
    }
  }
}

// A row for every code, alone at each place of a quad: the output is its value times the activation, which says that
// what a kernel decodes is the code and that it meets the right element.
TEST(LinearFp8, EveryCodeAtEveryPlace) {
  for (const int n_rows : {1, 7}) {
    const LinearShape shape{64, 256, n_rows};
    for (int place = 0; place < 5; ++place) {
      Fp8Operand w;
      w.codes.resize(64 * 256);
      for (int row = 0; row < 256; ++row) {
        const auto code = static_cast<std::uint8_t>(row);
        w.codes[row * 64 + place] = format::e4m3_is_nan(code) ? 0 : code;
      }
      w.scales = {1.0F};
      w.view = {"w", 256, 64, w.codes, w.scales, 256, 64};
      std::vector<float> x(static_cast<std::size_t>(n_rows) * 64);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(1023 - static_cast<int>(i) % 64);
      expect_equal_everywhere(w.view, shape, x, nullptr, "place " + std::to_string(place));
      for (const auto& backend : all_backends()) {
        auto linear = backend->make_linear(w.view);
        auto input = backend->make_linear_input(n_rows, 64);
        const auto values = backend->make_vector(x), out = poisoned(*backend, std::size_t{256} * n_rows);
        backend->begin_step(n_rows);
        backend->prepare_input(values->data(), n_rows, *input);
        backend->linear(*input, *linear.value(), nullptr, out->data());
        backend->end_step();
        const std::vector<float> y = host_copy(*backend, *out);
        for (int row = 0; row < 256; ++row) {
          const float value = format::e4m3_is_nan(row) ? 0.0F : format::e4m3_decode(row);
          ASSERT_EQ(y[row], value * static_cast<float>(1023 - place)) << backend->description() << ", code " << row;
        }
      }
    }
  }
}

// The largest sums that the int32 routes must hold, and sums whose two parts nearly cancel or round together.
TEST(LinearFp8, SumsAtTheBound) {
  for (const int n_rows : {1, 2, 11}) {
    for (const int pattern : {0, 1, 2, 3}) {
      const LinearShape shape{320, 40, n_rows};
      Random random(static_cast<std::uint64_t>(pattern));
      Fp8Operand w = make_fp8(random, shape, Codes::kAny, Scale::kRow);
      for (std::size_t i = 0; i < w.codes.size(); ++i) {
        constexpr std::uint8_t kLargest = 0x7E, kLargestSmall = 0x1F, kSmallest = 0x01;
        const bool is_small = pattern == 1 || (pattern >= 2 && i % 3 == 0);
        w.codes[i] = is_small ? (pattern == 3 ? kSmallest : kLargestSmall) : kLargest;
        if (pattern == 2 && i % 2 == 1) w.codes[i] |= 0x80;
      }
      const std::vector<float> ones(static_cast<std::size_t>(n_rows) * shape.n_in, 1.0F);
      expect_equal_everywhere(w.view, shape, ones, nullptr, "bound, pattern " + std::to_string(pattern));
      expect_equal_everywhere(w.view, shape, activations(random, shape, Kind::kGaussian), nullptr,
                              "gaussian, pattern " + std::to_string(pattern));
    }
  }
}

TEST(LinearFp8, ExtremeScalesAndActivations) {
  Random random(4);
  for (const float scale : {0x1p-42F, 0x1p+42F}) {
    for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
      const LinearShape shape{208, 37, 5};
      Fp8Operand w = make_fp8(random, shape, Codes::kAny, Scale::kTile);
      std::ranges::fill(w.scales, scale);
      expect_equal_everywhere(w.view, shape, activations(random, shape, static_cast<Kind>(kind)), nullptr,
                              "scale " + std::to_string(scale) + ", kind " + std::to_string(kind));
    }
  }
}

TEST(LinearFp8, EmbeddingsAreValuesTimesScales) {
  Random random(5);
  for (const Scale scale : {Scale::kTensor, Scale::kRow, Scale::kTile}) {
    const Fp8Operand w = make_fp8(random, {200, 300, 1}, Codes::kAny, scale);
    const std::vector<std::int32_t> tokens = {0, 299, 128, 127, 5, 5};
    const std::size_t n = tokens.size() * 200;
    std::vector<float> expected;
    for (const std::int32_t token : tokens) {
      for (int i = 0; i < 200; ++i) {
        expected.push_back(format::e4m3_decode(w.codes[token * 200 + i]) * w.view.scale(token, i));
      }
    }
    for (const auto& backend : all_backends()) {
      const auto embedding = backend->make_embedding(w.view);
      ASSERT_TRUE(embedding.ok());
      const auto out = poisoned(*backend, n);
      backend->begin_step(static_cast<int>(tokens.size()));
      backend->embed(*embedding.value(), tokens, out->data());
      backend->end_step();
      const std::vector<float> actual = host_copy(*backend, *out);
      EXPECT_EQ(std::memcmp(actual.data(), expected.data(), 4 * n), 0) << backend->description();
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::test
