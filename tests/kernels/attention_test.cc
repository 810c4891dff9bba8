// Attention, rope, norms, gates and look-ups against the reference.
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "format/portable.h"
#include "tests/kernels/backend_fixture.h"

namespace nibble::kernels::test {
namespace {

struct AttentionCase {
  int head_dim, n_heads, n_kv_heads;
  std::vector<int> positions;  // of the rows that ask; everything up to the last is stored
  float gain = 1;              // of the keys: how peaked the softmax is
  Kind kind = Kind::kGaussian;
  int window = 0;
};

void expect_equal_everywhere(const AttentionCase& c, std::uint64_t seed) {
  Random random(seed);
  const int n_stored = c.positions.back() + 1, layer = 1;
  const auto width = static_cast<std::size_t>(c.n_kv_heads) * c.head_dim;
  std::vector<float> k = random.floats(n_stored * width, c.kind);
  const std::vector<float> v = random.floats(n_stored * width, c.kind);
  const std::vector<float> q = random.floats(c.positions.size() * c.n_heads * c.head_dim, c.kind);
  for (float& x : k) x *= c.gain;
  const AttentionShape shape{c.n_heads, c.n_kv_heads, c.head_dim,
                             static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim))), c.window};
  const auto run = [&](Backend& backend) {
    auto cache = backend.make_kv_cache(
        {.n_layers = 2, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .capacity = n_stored + 3});
    std::vector<TokenRow> stored, asking;
    for (int pos = 0; pos < n_stored; ++pos) stored.push_back({cache.get(), pos});
    for (const int pos : c.positions) asking.push_back({cache.get(), pos});
    const auto keys = backend.make_vector(k), values = backend.make_vector(v), queries = backend.make_vector(q);
    const auto out = poisoned(backend, q.size());
    backend.begin_step(n_stored);
    backend.store_kv(keys->data(), values->data(), stored, layer);
    backend.attention(queries->data(), asking, layer, shape, out->data());
    for (const std::uint8_t flag : backend.end_step()) EXPECT_EQ(flag, 0);
    return host_copy(backend, *out);
  };
  const std::vector<float> expected = run(reference());
  for (const auto& backend : all_backends()) {
    if (c.window != 0 && !backend->has(Ability::kWindow)) continue;
    EXPECT_TRUE(same_bits(run(*backend), expected, q.size(),
                          backend->description() + ", window " + std::to_string(c.window) + ", head_dim " +
                              std::to_string(c.head_dim) + ", keys " + std::to_string(n_stored) + ", gain " +
                              std::to_string(c.gain)));
  }
}

TEST(Attention, EveryHeadDimAndPosition) {
  std::uint64_t seed = 100;
  for (const int head_dim : {64, 80, 96, 128, 256, 48, 16, 40}) {
    for (const int pos : {0, 62, 126, 127, 128, 299}) expect_equal_everywhere({head_dim, 2, 1, {pos}}, ++seed);
  }
}

TEST(Attention, GroupedQueriesAndManyRows) {
  for (const auto& [n_heads, n_kv_heads] : {std::pair{1, 1}, {3, 1}, {4, 4}, {9, 3}, {14, 2}}) {
    expect_equal_everywhere({64, n_heads, n_kv_heads, {0, 5, 127, 128, 140}}, 200 + n_heads);
  }
}

// So many that a backend takes them in large tiles, over splits that only some rows of a tile see.
TEST(Attention, ManyRowsOverManySplits) {
  std::vector<int> positions;
  for (int pos = 125; pos < 275; ++pos) positions.push_back(pos);
  expect_equal_everywhere({128, 28, 7, positions}, 500);
  expect_equal_everywhere({128, 28, 14, positions, 300.0F}, 501);
  expect_equal_everywhere({64, 60, 20, positions, 1.0F, Kind::kOutliers}, 502);
  expect_equal_everywhere({64, 32, 4, positions, 1.0F, Kind::kHuge}, 503);
  expect_equal_everywhere({64, 60, 20, positions, 0x1p-45F}, 504);
}

// Few rows: threads share the splits of a row, more than once around for many heads; heads come in groups.
TEST(Attention, SplitsOfOneRow) {
  for (const int pos : {127, 128, 700}) expect_equal_everywhere({64, 11, 1, {pos}}, 250 + pos);
  expect_equal_everywhere({16, 128, 1, {1100}}, 260);
  expect_equal_everywhere({80, 4, 2, {3, 640}}, 261);
}

TEST(Attention, PeakedAndFlatSoftmax) {
  for (const float gain : {0.0F, 0x1p-45F, 0.01F, 10.0F, 300.0F, 1e6F, 1e15F}) {
    expect_equal_everywhere({64, 2, 2, {100, 290}, gain}, 300);
  }
}

TEST(Attention, EveryKindOfValues) {
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    expect_equal_everywhere({80, 3, 1, {17, 200}, 1.0F, static_cast<Kind>(kind)}, 400);
  }
}

// Windows of one key, that start and end anywhere in a split, at its edges, or before the first position.
TEST(Attention, SlidingWindows) {
  const std::vector<int> positions = {0, 1, 62, 126, 127, 128, 129, 255, 256, 299};
  std::uint64_t seed = 500;
  for (const int window : {1, 2, 15, 16, 17, 100, 127, 128, 129, 130, 256, 299, 300, 301}) {
    for (const int head_dim : {64, 80, 256}) {
      expect_equal_everywhere(
          {.head_dim = head_dim, .n_heads = 2, .n_kv_heads = 1, .positions = positions, .window = window}, ++seed);
    }
  }
  expect_equal_everywhere(
      {.head_dim = 64, .n_heads = 4, .n_kv_heads = 2, .positions = positions, .gain = 300, .window = 130}, ++seed);
}

// So many rows that a backend takes them in tiles, of which some rows no longer see what others still do.
TEST(Attention, SlidingWindowsOfManyRows) {
  std::vector<int> positions;
  for (int pos = 90; pos < 210; ++pos) positions.push_back(pos);
  std::uint64_t seed = 600;
  for (const auto& [head_dim, n_heads, n_kv_heads] : {std::tuple{64, 3, 3}, {128, 4, 2}, {80, 3, 3}, {256, 4, 1}}) {
    for (const int window : {1, 20, 128, 130}) {
      expect_equal_everywhere({.head_dim = head_dim,
                               .n_heads = n_heads,
                               .n_kv_heads = n_kv_heads,
                               .positions = positions,
                               .window = window},
                              ++seed);
    }
  }
  expect_equal_everywhere(
      {.head_dim = 64, .n_heads = 40, .n_kv_heads = 40, .positions = positions, .gain = 300, .window = 100}, ++seed);
}

// What lies before the window has no influence, not even as a NaN. One row, and many.
TEST(Attention, KeysBeforeTheWindowAreNotRead) {
  constexpr int kHeadDim = 64, kHeads = 3, kKeys = 150, kWindow = 21;
  constexpr std::size_t kWidth = std::size_t{kHeads} * kHeadDim;
  Random random(9);
  const std::vector<float> k = random.floats(kKeys * kWidth, Kind::kGaussian);
  const auto run = [&](Backend& backend, int n_rows, float before) {
    std::vector<float> other = k;
    std::fill(other.begin(), other.end() - static_cast<std::ptrdiff_t>((kWindow + n_rows - 1) * kWidth), before);
    auto cache = backend.make_kv_cache({1, kHeads, kHeadDim, kKeys});
    std::vector<TokenRow> rows;
    for (int pos = 0; pos < kKeys; ++pos) rows.push_back({cache.get(), pos});
    const auto keys = backend.make_vector(other), query = backend.make_vector(k);
    const auto out = poisoned(backend, n_rows * kWidth);
    backend.begin_step(kKeys);
    backend.store_kv(keys->data(), keys->data(), rows, 0);
    backend.end_step();
    backend.begin_step(n_rows);
    backend.attention(query->data(), std::span(rows).last(n_rows), 0, {kHeads, kHeads, kHeadDim, 0.125F, kWindow},
                      out->data());
    for (const std::uint8_t flag : backend.end_step()) EXPECT_EQ(flag, 0);
    return host_copy(backend, *out);
  };
  for (const int n_rows : {1, 60}) {
    const std::vector<float> expected = run(reference(), n_rows, 1);
    for (const auto& backend : all_backends()) {
      if (!backend->has(Ability::kWindow)) continue;
      for (const float before : {0.0F, 1e30F, std::numeric_limits<float>::quiet_NaN()}) {
        EXPECT_TRUE(same_bits(run(*backend, n_rows, before), expected, n_rows * kWidth, backend->description()));
      }
    }
  }
}

// Rows that are stored in pieces, in any grouping, leave the same cache.
TEST(Attention, ChunksDoNotMatter) {
  Random random(5);
  constexpr int kHeadDim = 64, kRows = 150;
  constexpr std::size_t kFloats = std::size_t{kHeadDim} * kRows;
  const std::vector<float> k = random.floats(kFloats, Kind::kGaussian), v = random.floats(kFloats, Kind::kGaussian);
  const std::vector<float> q = random.floats(kFloats, Kind::kGaussian);
  const AttentionShape shape{.n_heads = 1, .n_kv_heads = 1, .head_dim = kHeadDim, .scale = 0.125F};
  const auto run = [&](Backend& backend, int chunk) {
    auto cache = backend.make_kv_cache({1, 1, kHeadDim, kRows});
    const auto keys = backend.make_vector(k), values = backend.make_vector(v), queries = backend.make_vector(q);
    const auto out = poisoned(backend, kFloats);
    for (int first = 0; first < kRows; first += chunk) {
      std::vector<TokenRow> rows;
      for (int pos = first; pos < std::min(kRows, first + chunk); ++pos) rows.push_back({cache.get(), pos});
      const std::size_t at = static_cast<std::size_t>(first) * kHeadDim;
      backend.begin_step(static_cast<int>(rows.size()));
      backend.store_kv(keys->data() + at, values->data() + at, rows, 0);
      backend.attention(queries->data() + at, rows, 0, shape, out->data() + at);
      backend.end_step();
    }
    return host_copy(backend, *out);
  };
  const std::vector<float> expected = run(reference(), kRows);
  for (const auto& backend : all_backends()) {
    for (const int chunk : {1, 7, 64, kRows}) {
      EXPECT_TRUE(same_bits(run(*backend, chunk), expected, kFloats, backend->description()));
    }
  }
}

// A sequence that is stored and attended in chunks, on a cache that may give up what windows have left behind.
class Sequence {
 public:
  static constexpr int kHeadDim = 16, kRows = 700;

  Sequence(Backend& backend, int window, int chunk)
      : backend_(backend),
        chunk_(chunk),
        shape_{.n_heads = 2, .n_kv_heads = 1, .head_dim = kHeadDim, .scale = 0.125F, .window = window},
        cache_(backend.make_kv_cache({.n_layers = 2,
                                      .n_kv_heads = 1,
                                      .head_dim = kHeadDim,
                                      .capacity = kRows,
                                      .windows = {0, window},
                                      .step_rows = chunk})) {}

  // What rows [first, end) of the sequence of a seed get.
  std::vector<float> run(std::uint64_t seed, int first, int end) {
    Random random(seed);
    const std::vector<float> k = random.floats(std::size_t{kRows} * kHeadDim, Kind::kGaussian);
    const std::vector<float> q = random.floats(std::size_t{2} * kRows * kHeadDim, Kind::kGaussian);
    const auto keys = backend_.make_vector(k), queries = backend_.make_vector(q);
    const auto out = poisoned(backend_, q.size());
    for (int begin = first; begin < end; begin += chunk_) {
      std::vector<TokenRow> rows;
      for (int pos = begin; pos < std::min(end, begin + chunk_); ++pos) rows.push_back({cache_.get(), pos});
      const std::size_t at = static_cast<std::size_t>(begin) * kHeadDim;
      backend_.begin_step(static_cast<int>(rows.size()));
      backend_.store_kv(keys->data() + at, keys->data() + at, rows, 1);
      backend_.attention(queries->data() + 2 * at, rows, 1, shape_, out->data() + 2 * at);
      backend_.end_step();
    }
    const std::vector<float> all = host_copy(backend_, *out);
    return {all.begin() + std::ptrdiff_t{2} * first * kHeadDim, all.begin() + std::ptrdiff_t{2} * end * kHeadDim};
  }
  KvCache& cache() { return *cache_; }

 private:
  Backend& backend_;
  int chunk_;
  AttentionShape shape_;
  std::unique_ptr<KvCache> cache_;
};

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, {}, format::float_bits, format::float_bits);
}

TEST(Attention, WindowsOnACacheThatForgets) {
  for (const int window : {1, 130, 300}) {
    const std::vector<float> expected = Sequence(reference(), window, Sequence::kRows).run(1, 0, Sequence::kRows);
    for (const int chunk : {13, 129}) {
      for (const auto& backend : all_backends()) {
        if (!backend->has(Ability::kWindow)) continue;
        EXPECT_TRUE(equal_bits(Sequence(*backend, window, chunk).run(1, 0, Sequence::kRows), expected))
            << backend->description() << ", window " << window << ", chunk " << chunk;
      }
    }
  }
}

// A cache goes back to what it still holds and says so where it does not; what follows has the right bits.
TEST(Attention, CachesGoBack) {
  constexpr int kWindow = 130, kChunk = 16;  // three splits of 128: what follows position 445 sees 316 and later ones
  constexpr int kFirstHeld = Sequence::kRows - 3 * 128 + kWindow - 1;
  // Sequence 1 up to `kept`, then sequence 2.
  const auto expected_behind = [](int kept) {
    Sequence sequence(reference(), kWindow, Sequence::kRows);
    sequence.run(1, 0, kept);
    return sequence.run(2, kept, Sequence::kRows);
  };
  const std::vector<float> anew = expected_behind(0);
  for (const int kept : {200, kFirstHeld - 1, kFirstHeld, Sequence::kRows - 1}) {
    const std::vector<float> expected = expected_behind(kept);
    for (const auto& backend : all_backends()) {
      if (!backend->has(Ability::kWindow)) continue;
      Sequence sequence(*backend, kWindow, kChunk);
      sequence.run(1, 0, Sequence::kRows);
      const int from = sequence.cache().rewind(kept);
      EXPECT_EQ(from, backend->name() == "cpu" && kept < kFirstHeld ? 0 : kept) << backend->description();
      EXPECT_TRUE(equal_bits(sequence.run(2, from, Sequence::kRows), from == 0 ? anew : expected))
          << backend->description() << ", kept " << kept;
      EXPECT_EQ(sequence.cache().rewind(Sequence::kRows - 1), Sequence::kRows - 1);  // it never gives up the last
    }
  }
}

TEST(Attention, CachesOfWindowsAreSmall) {
  for (const auto& backend : all_cpu_backends()) {
    KvShape shape{.n_layers = 6, .n_kv_heads = 1, .head_dim = 256, .capacity = 8192};
    const std::uint64_t all = backend->kv_cache_bytes(shape);
    EXPECT_EQ(backend->make_kv_cache(shape)->bytes(), all);
    EXPECT_EQ(all, std::uint64_t{6} * 8192 * (3 * 256 + 8));
    shape.windows = {512, 512, 512, 512, 512, 0};
    shape.step_rows = 64;  // rows see 575 positions, which may lie in six splits
    EXPECT_EQ(backend->kv_cache_bytes(shape), (std::uint64_t{8192} + 5 * 6 * 128) * (3 * 256 + 8));
    EXPECT_EQ(backend->make_kv_cache(shape)->bytes(), backend->kv_cache_bytes(shape));
  }
}

TEST(Attention, FlagsValuesThatAreNotFinite) {
  constexpr int kHeadDim = 64;
  for (const auto& backend : all_backends()) {
    auto cache = backend->make_kv_cache({1, 1, kHeadDim, 4});
    const std::vector<TokenRow> rows = {{cache.get(), 0}, {cache.get(), 1}};
    const std::vector<float> k(2 * kHeadDim, 1.0F);
    std::vector<float> v = k, q = k;
    v[kHeadDim + 3] = std::numeric_limits<float>::quiet_NaN();
    q[0] = std::numeric_limits<float>::infinity();
    const auto keys = backend->make_vector(k), values = backend->make_vector(v), queries = backend->make_vector(q);
    const auto out = backend->make_buffer(2 * kHeadDim);
    backend->begin_step(2);
    backend->store_kv(keys->data(), values->data(), rows, 0);
    EXPECT_EQ(backend->end_step()[0], 0);
    EXPECT_EQ(backend->end_step()[1], 1);
    backend->begin_step(1);
    backend->attention(queries->data(), std::span(rows).first(1), 0, {1, 1, kHeadDim, 0.125F}, out->data());
    EXPECT_EQ(backend->end_step()[0], 1);
  }
}

TEST(Elementwise, EqualTheReference) {
  Random random(6);
  for (const std::size_t n : {1, 5, 16, 100, 255, 256, 257, 576, 1536, 20000}) {
    for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
      const std::vector<float> x = random.floats(3 * n, static_cast<Kind>(kind));
      const std::vector<float> y = random.floats(3 * n, Kind::kGaussian);
      const auto run = [&](Backend& backend, int op) {
        const auto a = backend.make_vector(x), b = backend.make_vector(y);
        const auto out = op == 2 || op >= 4 ? guarded(backend, y) : poisoned(backend, 3 * n);
        backend.begin_step(3);
        if (op == 0) backend.rms_norm(a->data(), b->data(), 3, static_cast<int>(n), 1e-5F, out->data());
        if (op == 1) backend.silu_mul(a->data(), b->data(), 3 * n, out->data());
        if (op == 2) backend.add(out->data(), a->data(), 3 * n);
        if (op == 3) backend.gelu_mul(a->data(), b->data(), 3 * n, out->data());
        if (op == 4) backend.scale(out->data(), x[0], 3 * n);
        if (op == 5) backend.rms_norm(out->data(), a->data(), 3, static_cast<int>(n), 1e-5F, out->data());
        backend.end_step();
        return host_copy(backend, *out);
      };
      for (int op = 0; op < 6; ++op) {
        const std::vector<float> expected = run(reference(), op);
        for (const auto& backend : all_backends()) {
          if (op == 3 && !backend->has(Ability::kGeluGate)) continue;
          if (op == 4 && !backend->has(Ability::kScale)) continue;
          EXPECT_TRUE(same_bits(run(*backend, op), expected, 3 * n,
                                backend->description() + ", op " + std::to_string(op) + ", n " + std::to_string(n)));
        }
      }
    }
  }
}

TEST(Rope, EqualsTheReference) {
  Random random(7);
  for (const int head_dim : {16, 64, 80, 128}) {
    for (const bool interleaved : {false, true}) {
      const int rotary_dim = head_dim == 80 ? 32 : head_dim;
      const std::vector<float> table = random.floats(std::size_t{10} * rotary_dim, Kind::kGaussian);
      const std::vector<float> x = random.floats(std::size_t{15} * head_dim, Kind::kOutliers);
      const auto run = [&](Backend& backend) {
        auto rope = backend.make_rope_table(table, rotary_dim, interleaved);
        std::vector<TokenRow> rows;
        for (const int pos : {0, 9, 3, 4, 5}) rows.push_back({nullptr, pos});
        const auto out = guarded(backend, x);
        backend.begin_step(static_cast<int>(rows.size()));
        backend.rope(out->data(), 3, head_dim, rows, *rope);
        backend.end_step();
        return host_copy(backend, *out);
      };
      const std::vector<float> expected = run(reference());
      for (const auto& backend : all_backends()) {
        EXPECT_TRUE(same_bits(run(*backend), expected, x.size(), backend->description()));
      }
    }
  }
}

TEST(Embed, EveryType) {
  Random random(8);
  constexpr std::uint64_t kVocab = 20, kDim = 96;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    const std::vector<std::uint8_t> bytes = random.bytes(bytes_of(dtype, kVocab * kDim));
    const TensorView view{"embedding", dtype, {kDim, kVocab}, std::as_bytes(std::span(bytes))};
    const std::vector<std::int32_t> tokens = {0, 19, 7, 7, 3, 2, 1};
    const std::size_t n = tokens.size() * kDim;
    const auto run = [&](Backend& backend) {
      const auto embedding = backend.make_embedding(view);
      const auto buffer = poisoned(backend, n);
      backend.begin_step(static_cast<int>(tokens.size()));
      backend.embed(*embedding.value(), tokens, buffer->data());
      backend.end_step();
      std::vector<float> out = host_copy(backend, *buffer);
      std::replace_if(
          out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n), [](float x) { return std::isnan(x); },
          1234.0F);  // which NaN it is, is nobody's promise
      return out;
    };
    const std::vector<float> expected = run(reference());
    for (const auto& backend : all_backends()) {
      EXPECT_TRUE(same_bits(run(*backend), expected, n, backend->description()));
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::test
