// Shapes of linear layers that differ in kind, and the comparison of backends with the oracle on them.
#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "tests/kernels/backend_fixture.h"

namespace nibble::kernels::test {

struct LinearShape {
  int n_in, n_out, n_rows;
};

// Every kind of extent: K below, at and beyond a block and with each tail, and beyond a chunk of blocks; outputs around
// a tile, a panel and a group of panels; rows around a group.
inline std::vector<LinearShape> shapes(int k_step) {
  std::vector<LinearShape> out;
  for (const int n_in : {16, 32, 48, 64, 80, 128, 256, 576, 1536, 4096}) {
    if (n_in % k_step != 0) continue;
    out.push_back({n_in, 17, 1});
    out.push_back({n_in, 17, 3});
  }
  for (const int n_out : {1, 3, 15, 16, 17, 49, 100}) {
    out.push_back({96, n_out, 1});
    out.push_back({96, n_out, 2});
  }
  for (const int n_out : {64, 65, 79, 130}) out.push_back({160, n_out, n_out % 2 == 0 ? 1 : 6});
  for (int n_rows = 1; n_rows <= 17; ++n_rows) out.push_back({160, 33, n_rows});
  for (const int n_rows : {31, 32, 33}) out.push_back({224, 49, n_rows});
  for (const int n_in : {512, 544, 1280}) out.push_back({n_in, n_in == 544 ? 307 : 80, n_in == 512 ? 13 : 7});
  return out;
}

enum class Scales {
  kLikely,      // three octaves
  kAny,         // signs, subnormals, zeros, every octave
  kWideSpread,  // one row in twenty spans all octaves
  kZeroed,
};

struct Nvfp4Operand {
  std::vector<std::uint8_t> codes, scales;
  Nvfp4View view;
};

inline std::uint8_t random_scale(Random& random, Scales kind, std::size_t row) {
  switch (kind) {
    case Scales::kLikely:
      return static_cast<std::uint8_t>(72 + random.below(24));
    case Scales::kAny: {
      const auto byte = static_cast<std::uint8_t>(random.bits());
      return (byte & 0x7F) == 0x7F ? byte & 0xFE : byte;
    }
    case Scales::kWideSpread:
      return static_cast<std::uint8_t>(row % 20 == 5 && random.below(2) == 0 ? random.below(16) : 0x7E);
    case Scales::kZeroed:
      break;
  }
  return random.below(2) == 0 ? 0 : 0x80;
}

inline Nvfp4Operand make_nvfp4(Random& random, const LinearShape& shape, Scales kind, float tensor_scale) {
  const std::size_t n = static_cast<std::size_t>(shape.n_out) * shape.n_in;
  Nvfp4Operand w{random.bytes(n / 2), std::vector<std::uint8_t>(n / 16), {}};
  for (std::size_t i = 0; i < w.scales.size(); ++i) {
    w.scales[i] = random_scale(random, kind, i / (static_cast<std::size_t>(shape.n_in) / 16));
  }
  w.view = {"w",
            static_cast<std::uint64_t>(shape.n_out),
            static_cast<std::uint64_t>(shape.n_in),
            w.codes,
            w.scales,
            tensor_scale,
            {}};
  return w;
}

// What a backend computes, and that it wrote nothing behind it.
inline std::vector<float> linear_output(Backend& backend, const WeightSource& source, const LinearShape& shape,
                                        std::span<const float> x, const float* bias, const std::string& what) {
  const std::size_t n = static_cast<std::size_t>(shape.n_rows) * shape.n_out;
  auto linear = backend.make_linear(source);
  auto input = backend.make_linear_input(shape.n_rows + 2, shape.n_in);
  const auto values = backend.make_vector(x), out = poisoned(backend, n);
  const auto added = bias != nullptr ? backend.make_vector({bias, static_cast<std::size_t>(shape.n_out)}) : nullptr;
  backend.begin_step(shape.n_rows);
  backend.prepare_input(values->data(), shape.n_rows, *input);
  backend.linear(*input, *linear.value(), added ? added->data() : nullptr, out->data());
  for (const std::uint8_t flag : backend.end_step()) EXPECT_EQ(flag, 0) << what;
  std::vector<float> got = host_copy(backend, *out);
  EXPECT_TRUE(same_bits(got, got, n, what));
  return got;
}

// What the oracle computes, and the same from each of the backends.
inline void expect_equal_everywhere(const WeightSource& source, const LinearShape& shape, std::span<const float> x,
                                    const float* bias, const std::string& what,
                                    const std::vector<std::unique_ptr<Backend>>& backends = all_backends(),
                                    Backend& oracle = reference()) {
  const std::size_t n = static_cast<std::size_t>(shape.n_rows) * shape.n_out;
  const std::vector<float> expected = linear_output(oracle, source, shape, x, bias, what);
  for (const auto& backend : backends) {
    const std::vector<float> got = linear_output(*backend, source, shape, x, bias, what);
    EXPECT_TRUE(same_bits(got, expected, n, backend->description() + ", " + what));
  }
}

// Those of some backends that take a contract's activations, for a while.
class BackendsThatTake {
 public:
  BackendsThatTake(const std::vector<std::unique_ptr<Backend>>& backends, ActivationFormat format) {
    for (const auto& backend : backends) {
      const Status status = backend->use_activations(format);
      if (status.ok()) {
        takers_.push_back(backend.get());
      } else {
        refusals_.insert(status.error().message);
      }
    }
  }
  ~BackendsThatTake() {
    for (Backend* backend : takers_) EXPECT_TRUE(backend->use_activations(ActivationFormat::kA11).ok());
  }
  BackendsThatTake(const BackendsThatTake&) = delete;
  BackendsThatTake& operator=(const BackendsThatTake&) = delete;

  auto begin() const { return takers_.begin(); }
  auto end() const { return takers_.end(); }
  bool empty() const { return takers_.empty(); }
  std::string refusals() const { return fmt::format("{}", fmt::join(refusals_, "; ")); }

 private:
  std::vector<Backend*> takers_;
  std::set<std::string> refusals_;
};

inline std::string name_of(const LinearShape& s, Kind kind) {
  return "K " + std::to_string(s.n_in) + ", outputs " + std::to_string(s.n_out) + ", rows " + std::to_string(s.n_rows) +
         ", kind " + std::to_string(static_cast<int>(kind));
}

inline std::vector<float> activations(Random& random, const LinearShape& shape, Kind kind) {
  return random.floats(static_cast<std::size_t>(shape.n_rows) * shape.n_in, kind);
}

inline Kind any_kind(Random& random) {
  return static_cast<Kind>(random.below(static_cast<int>(Kind::kCount)));
}

// Magnitudes that f16 holds.
inline std::vector<float> half_sized(Random& random, const LinearShape& shape, Kind kind) {
  std::vector<float> x = activations(random, shape, kind);
  if (kind == Kind::kHuge) {
    for (float& value : x) value *= 0x1p-27F;
  }
  return x;
}

}  // namespace nibble::kernels::test
