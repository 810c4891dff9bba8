// The fused ops of the seam against the ops they name, as the oracle runs these one by one.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "tests/kernels/backend_fixture.h"

namespace nibble::kernels::test {
namespace {

struct Outcome {
  std::vector<float> floats;  // all outputs, one after the other
  std::vector<std::uint8_t> flags;
};

template <typename Run>
void expect_equal_everywhere(const Run& run, const std::string& what, std::optional<Ability> needed = {}) {
  const Outcome expected = run(reference());
  for (const auto& backend : all_backends()) {
    if (needed && !backend->has(*needed)) continue;
    const Outcome actual = run(*backend);
    ASSERT_EQ(actual.floats.size(), expected.floats.size());
    const std::size_t n = expected.floats.size();  // memcmp takes no null, which an empty vector's data is
    EXPECT_TRUE(n == 0 || std::memcmp(actual.floats.data(), expected.floats.data(), 4 * n) == 0)
        << backend->description() << ", " << what;
    EXPECT_EQ(actual.flags, expected.flags) << backend->description() << ", " << what;
  }
}

void append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::vector<std::uint8_t> copy_of(std::span<const std::uint8_t> flags) {
  return {flags.begin(), flags.end()};
}

// Rows of random codes and scales: what shows which integers an input holds.
struct Weights {
  Weights(Random& random, int n_out, int n_in)
      : codes(random.bytes(std::size_t(n_out) * n_in / 2)), scales(std::size_t(n_out) * n_in / 16) {
    for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(0x30 + random.below(16));
    view = {"w", std::uint64_t(n_out), std::uint64_t(n_in), codes, scales, 0.01F, {}};
  }
  std::vector<std::uint8_t> codes, scales;
  Nvfp4View view;
};

struct Shape {
  int n_rows, dim;
};
constexpr Shape kShapes[] = {{1, 16}, {1, 80}, {3, 80}, {1, 1040}, {2, 2064}, {9, 576}, {1, 8960}, {17, 1104}};

TEST(Fused, AddNormInputEqualsItsOps) {
  Random random(31);
  for (const Shape& shape : kShapes) {
    for (const bool has_y : {false, true}) {
      const std::size_t n = std::size_t(shape.n_rows) * shape.dim;
      const std::vector<float> x = random.floats(n, Kind::kGaussian), y = random.floats(n, Kind::kOutliers);
      const std::vector<float> norm = random.floats(shape.dim, Kind::kGaussian);
      const Weights weights(random, 5, shape.dim);
      expect_equal_everywhere(
          [&](Backend& backend) {
            const auto residual = backend.make_vector(x), added = backend.make_vector(y), w = backend.make_vector(norm);
            const auto normed = backend.make_buffer(n), out = backend.make_buffer(std::size_t(shape.n_rows) * 5);
            const auto input = backend.make_linear_input(shape.n_rows, shape.dim);
            const auto linear = backend.make_linear(weights.view);
            Outcome outcome;
            backend.begin_step(shape.n_rows);
            backend.add_norm_input(residual->data(), has_y ? added->data() : nullptr, w->data(), shape.n_rows,
                                   shape.dim, 1e-5F, normed->data(), *input);
            backend.linear(*input, *linear.value(), nullptr, out->data());
            outcome.flags = copy_of(backend.end_step());
            for (Buffer* buffer : {residual.get(), normed.get(), out.get()}) {
              append(outcome.floats, host_copy(backend, *buffer));
            }
            return outcome;
          },
          "rows " + std::to_string(shape.n_rows) + ", dim " + std::to_string(shape.dim));
    }
  }
}

using GateInput = void (Backend::*)(const float*, const float*, int, int, float*, LinearInput&);

void expect_gate_input_equals_its_ops(GateInput gate_input, std::optional<Ability> needed) {
  Random random(32);
  for (const Shape& shape : kShapes) {
    const std::size_t n = std::size_t(shape.n_rows) * shape.dim;
    const std::vector<float> gate = random.floats(n, Kind::kGaussian), up = random.floats(n, Kind::kOutliers);
    const Weights weights(random, 5, shape.dim);
    expect_equal_everywhere(
        [&](Backend& backend) {
          const auto g = backend.make_vector(gate), u = backend.make_vector(up);
          const auto out = backend.make_buffer(std::size_t(shape.n_rows) * 5);
          const auto input = backend.make_linear_input(shape.n_rows, shape.dim);
          const auto linear = backend.make_linear(weights.view);
          Outcome outcome;
          backend.begin_step(shape.n_rows);
          (backend.*gate_input)(g->data(), u->data(), shape.n_rows, shape.dim, g->data(), *input);
          backend.linear(*input, *linear.value(), nullptr, out->data());
          outcome.flags = copy_of(backend.end_step());
          for (Buffer* buffer : {g.get(), out.get()}) append(outcome.floats, host_copy(backend, *buffer));
          return outcome;
        },
        "rows " + std::to_string(shape.n_rows) + ", dim " + std::to_string(shape.dim), needed);
  }
}

TEST(Fused, SiluMulInputEqualsItsOps) {
  expect_gate_input_equals_its_ops(&Backend::silu_mul_input, {});
}

TEST(Fused, GeluMulInputEqualsItsOps) {
  expect_gate_input_equals_its_ops(&Backend::gelu_mul_input, Ability::kGeluGate);
}

// Layers of different heights and kinds, none a multiple of a tile.
TEST(Fused, LinearsEqualTheLinears) {
  Random random(33);
  constexpr int kDim = 144;
  const std::vector<float> bias = random.floats(37, Kind::kGaussian);
  std::vector<std::uint8_t> halves(std::size_t{23} * kDim * 2);
  for (std::size_t i = 0; i < halves.size(); i += 2) halves[i + 1] = static_cast<std::uint8_t>(0x38 + random.below(4));
  const TensorView rows16{"r", DType::kF16, {kDim, 23}, std::as_bytes(std::span(halves))};
  const Weights tall(random, 37, kDim), small(random, 3, kDim);
  for (const int n_rows : {1, 2, 5, 19}) {
    const std::vector<float> x = random.floats(std::size_t(n_rows) * kDim, Kind::kGaussian);
    expect_equal_everywhere(
        [&](Backend& backend) {
          const auto values = backend.make_vector(x), b = backend.make_vector(bias);
          const auto input = backend.make_linear_input(n_rows, kDim);
          const auto a = backend.make_linear(tall.view), c = backend.make_linear(small.view),
                     d = backend.make_linear(rows16);
          const auto out_a = backend.make_buffer(std::size_t(n_rows) * 37);
          const auto out_c = backend.make_buffer(std::size_t(n_rows) * 3);
          const auto out_d = backend.make_buffer(std::size_t(n_rows) * 23);
          Outcome outcome;
          backend.begin_step(n_rows);
          backend.prepare_input(values->data(), n_rows, *input);
          const LinearCall calls[] = {{a.value().get(), b->data(), out_a->data()},
                                      {c.value().get(), nullptr, out_c->data()},
                                      {d.value().get(), nullptr, out_d->data()}};
          backend.linears(*input, calls);
          outcome.flags = copy_of(backend.end_step());
          for (Buffer* buffer : {out_a.get(), out_c.get(), out_d.get()}) {
            append(outcome.floats, host_copy(backend, *buffer));
          }
          return outcome;
        },
        "rows " + std::to_string(n_rows));
  }
}

TEST(Fused, RopeStoreKvAndAttentionInputEqualTheirOps) {
  Random random(34);
  for (const int head_dim : {64, 80, 128}) {
    for (const int n_rows : {1, 2, 7, 40}) {
      constexpr int kHeads = 6, kKvHeads = 2, kFirst = 3;
      const int capacity = kFirst + n_rows;
      const std::vector<float> table = random.floats(std::size_t(capacity) * head_dim, Kind::kGaussian);
      const auto heads = [&](int n) { return random.floats(std::size_t(capacity) * n * head_dim, Kind::kGaussian); };
      const std::vector<float> q = heads(kHeads), k = heads(kKvHeads), v = heads(kKvHeads);
      const Weights weights(random, 5, kHeads * head_dim);
      const AttentionShape shape{kHeads, kKvHeads, head_dim, static_cast<float>(1.0 / std::sqrt(1.0 * head_dim))};
      expect_equal_everywhere(
          [&](Backend& backend) {
            const auto cache = backend.make_kv_cache({1, kKvHeads, head_dim, capacity});
            const auto rope = backend.make_rope_table(table, head_dim, false);
            const auto query = backend.make_vector(q), key = backend.make_vector(k), value = backend.make_vector(v);
            const auto attended = backend.make_buffer(std::size_t(n_rows) * kHeads * head_dim);
            const auto out = backend.make_buffer(std::size_t(n_rows) * 5);
            const auto input = backend.make_linear_input(n_rows, kHeads * head_dim);
            const auto linear = backend.make_linear(weights.view);
            std::vector<TokenRow> earlier, rows;
            for (int pos = 0; pos < kFirst; ++pos) earlier.push_back({cache.get(), pos});
            for (int pos = kFirst; pos < capacity; ++pos) rows.push_back({cache.get(), pos});
            backend.begin_step(kFirst);
            backend.store_kv(key->data(), value->data(), earlier, 0);
            backend.end_step();
            Outcome outcome;
            backend.begin_step(n_rows);
            backend.rope_store_kv(query->data(), kHeads, key->data(), value->data(), rows, 0, *rope);
            backend.attention_input(query->data(), rows, 0, shape, attended->data(), *input);
            backend.linear(*input, *linear.value(), nullptr, out->data());
            outcome.flags = copy_of(backend.end_step());
            for (Buffer* buffer : {query.get(), key.get(), attended.get(), out.get()}) {
              append(outcome.floats, host_copy(backend, *buffer));
            }
            return outcome;
          },
          "head_dim " + std::to_string(head_dim) + ", rows " + std::to_string(n_rows));
    }
  }
}

struct Decoding {
  int n_heads, n_kv_heads, head_dim, n_sequences, window = 0;
  int later = 0;       // than kFirst
  int rotary_dim = 0;  // 0: head_dim
  bool interleaved = true;
};

// Several layers and steps, so that a backend that counts on its scratch being left in order is seen.
void expect_decoding_equals_its_ops(Random& random, const Decoding& c) {
  constexpr int kLayers = 2, kSteps = 4, kFirst[] = {126, 0, 384, 63, 700, 255, 5, 127, 1};
  const int capacity = 704 + c.later;
  const auto heads = [&](int rows, int n) {
    return random.floats(std::size_t(rows) * n * c.head_dim, Kind::kGaussian);
  };
  const int rotary_dim = c.rotary_dim == 0 ? c.head_dim : c.rotary_dim;
  const std::vector<float> table = random.floats(std::size_t(capacity) * rotary_dim, Kind::kGaussian);
  const std::vector<float> q = heads(capacity, c.n_heads), k = heads(capacity, c.n_kv_heads),
                           v = heads(capacity, c.n_kv_heads);
  const Weights weights(random, 5, c.n_heads * c.head_dim);
  const AttentionShape shape{c.n_heads, c.n_kv_heads, c.head_dim, static_cast<float>(1.0 / std::sqrt(1.0 * c.head_dim)),
                             c.window};
  expect_equal_everywhere(
      [&](Backend& backend) {
        const std::size_t width = std::size_t(c.n_heads) * c.head_dim;
        const auto rope = backend.make_rope_table(table, rotary_dim, c.interleaved);
        const auto attended = backend.make_buffer(c.n_sequences * width);
        const auto out = backend.make_buffer(std::size_t(c.n_sequences) * 5);
        const auto input = backend.make_linear_input(c.n_sequences, static_cast<int>(width));
        const auto linear = backend.make_linear(weights.view);
        std::vector<std::unique_ptr<KvCache>> caches;
        for (int i = 0; i < c.n_sequences; ++i) {
          caches.push_back(backend.make_kv_cache({kLayers, c.n_kv_heads, c.head_dim, capacity}));
          std::vector<TokenRow> earlier;
          const int first = kFirst[i] + c.later;
          for (int pos = 0; pos < first; ++pos) earlier.push_back({caches.back().get(), pos});
          if (earlier.empty()) continue;
          const auto key = backend.make_vector(k), value = backend.make_vector(v);
          backend.begin_step(first);
          for (int layer = 0; layer < kLayers; ++layer) {
            backend.store_kv(key->data(), value->data(), earlier, layer);
          }
          backend.end_step();
        }
        Outcome outcome;
        for (int step = 0; step < kSteps; ++step) {
          std::vector<TokenRow> rows;
          for (int i = 0; i < c.n_sequences; ++i) rows.push_back({caches[i].get(), kFirst[i] + c.later + step});
          for (int layer = 0; layer < kLayers; ++layer) {
            const auto query = backend.make_vector(q), key = backend.make_vector(k), value = backend.make_vector(v);
            backend.begin_step(c.n_sequences);
            backend.rope_attention_input(query->data(), key->data(), value->data(), rows, layer, *rope, shape,
                                         attended->data(), *input);
            backend.linear(*input, *linear.value(), nullptr, out->data());
            for (const std::uint8_t flag : backend.end_step()) outcome.flags.push_back(flag);
            append(outcome.floats, host_copy(backend, *attended));
            append(outcome.floats, host_copy(backend, *out));
          }
        }
        return outcome;
      },
      "heads " + std::to_string(c.n_heads) + " of " + std::to_string(c.head_dim) + ", sequences " +
          std::to_string(c.n_sequences) + ", window " + std::to_string(c.window),
      c.window != 0 ? std::optional(Ability::kWindow) : std::nullopt);
}

// Rows of different sequences, each at a position of its own: what a step of decoding is.
TEST(Fused, RopeAttentionInputOfManySequencesEqualsItsOps) {
  Random random(36);
  for (const Decoding& c : {Decoding{6, 2, 64, 1},
                            {.n_heads = 8, .n_kv_heads = 2, .head_dim = 128, .n_sequences = 3, .interleaved = false},
                            {3, 3, 80, 5},
                            {.n_heads = 40, .n_kv_heads = 2, .head_dim = 64, .n_sequences = 2, .interleaved = false},
                            {.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .n_sequences = 3, .rotary_dim = 32},
                            {4, 1, 256, 9},
                            {2, 1, 64, 9, 1},
                            {2, 2, 128, 9, 128},
                            {4, 1, 256, 5, 129},
                            {2, 1, 64, 9, 300}}) {
    expect_decoding_equals_its_ops(random, c);
  }
}

// So many splits that a backend folds them in pieces, or by several thread blocks.
TEST(Fused, RopeAttentionInputOfManySplitsEqualsItsOps) {
  Random random(37);
  for (const Decoding& c : {Decoding{8, 1, 64, 1, 0, 1600}, {5, 1, 64, 1, 1000, 1024}, {8, 1, 256, 1, 0, 700}}) {
    expect_decoding_equals_its_ops(random, c);
  }
}
// Lengths that only a GPU's fold treats in another way, and only a GPU is fast enough for.
TEST(Fused, RopeAttentionInputOfLongSequencesEqualsItsOps) {
  const bool has_gpu = std::ranges::any_of(all_backends(), [](const auto& backend) {
    return backend->name() == "cuda" && backend->description().find("emulated") == std::string::npos;
  });
  if (!has_gpu) GTEST_SKIP() << "no GPU";
  Random random(38);
  for (const Decoding& c : {Decoding{4, 1, 128, 2, 0, 17000}, {7, 1, 64, 1, 0, 33000}}) {
    expect_decoding_equals_its_ops(random, c);
  }
}

TEST(Fused, AddRowsPicksAndAdds) {
  Random random(35);
  constexpr int kDim = 100;
  const std::vector<float> x = random.floats(std::size_t{9} * kDim, Kind::kGaussian);
  const std::vector<float> y = random.floats(std::size_t{9} * kDim, Kind::kOutliers);
  const std::vector<std::int32_t> indices = {0, 3, 4, 8};
  expect_equal_everywhere(
      [&](Backend& backend) {
        const auto a = backend.make_vector(x), b = backend.make_vector(y), out = backend.make_buffer(4 * kDim);
        backend.begin_step(4);
        backend.add_rows(a->data(), b->data(), indices, kDim, out->data());
        Outcome outcome{{}, copy_of(backend.end_step())};
        outcome.floats = host_copy(backend, *out);
        return outcome;
      },
      "add_rows");
}

// The head's rows raise flags of their own, behind those of the batch's rows.
TEST(Fused, AnInputRaisesItsOwnFlags) {
  const auto run = [](Backend& backend) {
    std::vector<float> x(std::size_t{3} * 80, 1.0F);
    x[80 + 79] = std::numeric_limits<float>::infinity();
    const auto values = backend.make_vector(x);
    const auto input = backend.make_linear_input(3, 80);
    input->first_flag = 4;
    backend.begin_step(7);
    backend.prepare_input(values->data(), 3, *input);
    return Outcome{{}, copy_of(backend.end_step())};
  };
  EXPECT_EQ(run(reference()).flags, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1, 0}));
  expect_equal_everywhere(run, "flags");
}

}  // namespace
}  // namespace nibble::kernels::test
