// Linear layers and embeddings of the block-quantized types of GGUF (contract nk1) against the oracle.
#include <algorithm>

#include "tests/kernels/linear_cases.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::kernels::test {
namespace {

namespace golden = oracle::golden;

TensorView view_of(std::span<const std::byte> bytes, DType dtype, int n_in, int n_out) {
  return {"rows", dtype, {static_cast<std::uint64_t>(n_in), static_cast<std::uint64_t>(n_out)}, bytes};
}

std::vector<std::byte> random_rows(Random& random, DType dtype, const LinearShape& shape) {
  return golden::quant_row(random.bits(), dtype, static_cast<std::size_t>(shape.n_in) * shape.n_out);
}

// The shapes of linear_test.cc that a type can have. Super-blocks need K to be a multiple of 256; their other shapes
// keep outputs and rows.
std::vector<LinearShape> shapes_of(DType dtype) {
  std::vector<LinearShape> out = shapes(32);
  if (dtype_info(dtype).block_size == 256) {
    for (LinearShape& shape : out) shape.n_in = (shape.n_in + 255) / 256 * 256;
  }
  return out;
}

class LinearQuant : public ::testing::TestWithParam<DType> {};

TEST_P(LinearQuant, EqualsTheOracle) {
  const DType dtype = GetParam();
  Random random(static_cast<std::uint64_t>(dtype));
  for (const LinearShape& shape : shapes_of(dtype)) {
    const Kind kind = any_kind(random);
    const std::vector<std::byte> w = random_rows(random, dtype, shape);
    const std::vector<float> bias = random.floats(shape.n_out, Kind::kGaussian);
    expect_equal_everywhere(view_of(w, dtype, shape.n_in, shape.n_out), shape, activations(random, shape, kind),
                            random.below(2) == 0 ? bias.data() : nullptr, name_of(shape, kind),
                            all_backends_in_one_form());
  }
}

TEST_P(LinearQuant, EveryKindOfActivations) {
  const DType dtype = GetParam();
  Random random(40 + static_cast<std::uint64_t>(dtype));
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    for (const int n_rows : {1, 5}) {
      const LinearShape shape{512, 21, n_rows};
      const std::vector<std::byte> w = random_rows(random, dtype, shape);
      expect_equal_everywhere(view_of(w, dtype, shape.n_in, shape.n_out), shape,
                              activations(random, shape, static_cast<Kind>(kind)), nullptr,
                              name_of(shape, static_cast<Kind>(kind)), all_backends_in_one_form());
    }
  }
}

// Sums at the bounds of the contract: all bits of codes and integer scales set or clear, activations of one size and of
// either sign.
TEST_P(LinearQuant, OneSignedAtTheBounds) {
  const DType dtype = GetParam();
  Random random(5);
  for (const std::byte fill : {std::byte{0x00}, std::byte{0xFF}, std::byte{0x80}, std::byte{0x7F}}) {
    for (const int n_rows : {1, 9}) {
      const LinearShape shape{256, 19, n_rows};
      std::vector<std::byte> w = random_rows(random, dtype, shape);
      const std::vector<std::byte> scales = w;
      std::ranges::fill(w, fill);
      for (std::size_t block = 0; block < w.size(); block += dtype_info(dtype).block_bytes) {
        for (const std::size_t offset : golden::scale_offsets(dtype)) {
          std::copy_n(scales.begin() + static_cast<std::ptrdiff_t>(block + offset), 2,
                      w.begin() + static_cast<std::ptrdiff_t>(block + offset));
        }
      }
      for (const float x : {1.0F, -1.0F}) {
        const std::vector<float> all(static_cast<std::size_t>(n_rows) * shape.n_in, x);
        expect_equal_everywhere(view_of(w, dtype, shape.n_in, shape.n_out), shape, all, nullptr, "bounds",
                                all_backends_in_one_form());
      }
    }
  }
}

TEST_P(LinearQuant, RefusesScalesThatAreNotFinite) {
  const DType dtype = GetParam();
  for (const std::size_t offset : golden::scale_offsets(dtype)) {
    std::vector<std::byte> bytes = golden::quant_row(19, dtype, std::size_t{3} * 512);
    for (const std::uint64_t element : {2 * 512U, 512U + dtype_info(dtype).block_size}) {  // the later one is not named
      bytes[bytes_of(dtype, element) + offset + 1] = std::byte{0xFC};
    }
    for (const auto& backend : all_backends_in_one_form()) {
      const auto linear = backend->make_linear(view_of(bytes, dtype, 512, 3));
      ASSERT_FALSE(linear.ok());
      EXPECT_EQ(linear.error().message, "weights are not finite");
      EXPECT_EQ(linear.error().tensor, "rows");
      if (dtype == DType::kQ8_0) continue;
      EXPECT_EQ(linear.error().found, "a scale that is NaN or infinite in row 1, block 1");
    }
  }
}

TEST_P(LinearQuant, EmbeddingsEqualTheOracle) {
  const DType dtype = GetParam();
  const std::vector<std::byte> bytes = golden::quant_row(23, dtype, std::size_t{7} * 512);
  const TensorView table = view_of(bytes, dtype, 512, 7);
  const std::vector<std::int32_t> tokens = {6, 0, 3, 3, 5};
  const auto run = [&](Backend& backend) {
    const auto embedding = backend.make_embedding(table);
    const auto out = poisoned(backend, tokens.size() * 512);
    backend.begin_step(static_cast<int>(tokens.size()));
    backend.embed(*embedding.value(), tokens, out->data());
    backend.end_step();
    return host_copy(backend, *out);
  };
  const std::vector<float> expected = run(reference());
  for (const auto& backend : all_backends_in_one_form()) {
    EXPECT_TRUE(same_bits(run(*backend), expected, tokens.size() * 512, backend->description()));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearQuant, ::testing::ValuesIn(golden::kQuantTypes),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

}  // namespace
}  // namespace nibble::kernels::test
