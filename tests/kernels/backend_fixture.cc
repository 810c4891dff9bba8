#include "tests/kernels/backend_fixture.h"

#include <bit>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/detect.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/registry.h"
#include "tests/kernels/oracle_backend.h"

namespace nibble::kernels::test {
namespace {

constexpr std::uint32_t kPoison = 0x7FC0DEAD;

std::vector<std::unique_ptr<Backend>> make_all_cpu_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const std::string_view isa : cpu::isa_names()) {
    for (const int n_threads : {1, 2, 3}) {
      auto backend = make_cpu_backend({.isa = std::string(isa), .n_threads = n_threads});
      if (!backend.ok()) ADD_FAILURE() << backend.error().to_string();
      if (backend.ok()) backends.push_back(std::move(*backend));
    }
  }
  EXPECT_GE(backends.size(), 3U);
  return backends;
}

std::vector<std::unique_ptr<Backend>> make_all_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  if (named_backend() == nullptr) backends = make_all_cpu_backends();
  std::ranges::move(make_optional_backends(), std::back_inserter(backends));
  return backends;
}

}  // namespace

const char* named_backend() {
  return std::getenv("NIBBLE_TEST_BACKEND");
}

std::vector<std::unique_ptr<Backend>> make_optional_backends(std::span<const BackendForm> forms) {
  const char* only = named_backend();
  std::vector<std::unique_ptr<Backend>> backends;
  for (const BackendState& state : backend_states()) {
    const bool is_wanted = only == nullptr ? state.name != "cpu" && state.name != "reference" : state.name == only;
    if (!is_wanted || (only == nullptr && !state.unusable_because.empty())) continue;
    for (const BackendForm& form : forms) {
      auto backend = make_backend(state.name, {.cuda_graphs = form.has_graphs, .cuda_route = form.route});
      if (!backend.ok()) ADD_FAILURE() << backend.error().to_string();
      if (backend.ok()) backends.push_back(std::move(*backend));
    }
  }
  EXPECT_TRUE(only == nullptr || !backends.empty()) << "no backend is called " << only;
  return backends;
}

bool has_every_ability(const Backend& backend) {
  return backend.has(Ability::kScale) && backend.has(Ability::kGeluGate) && backend.has(Ability::kWindow);
}

// Sum of uniform variables: no libm, so that the operands are the same on every machine.
float Random::gaussian() {
  float sum = 0;
  for (int i = 0; i < 6; ++i) sum += static_cast<float>(bits() >> 8) * 0x1p-24F - 0.5F;
  return sum * 1.4F;
}

std::vector<float> Random::floats(std::size_t n, Kind kind) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gaussian();
    switch (kind) {
      case Kind::kGaussian:
        out[i] = g;
        break;
      case Kind::kOutliers:
        out[i] = below(50) == 0 ? g * 1000 : below(3) == 0 ? -0.0F : g;
        break;
      case Kind::kZeros:
        out[i] = i / 64 % 2 != 0 ? g : below(2) == 0 ? 0.0F : -0.0F;
        break;
      case Kind::kTiny:
        out[i] = g * (i / 64 % 2 == 0 ? 0x1p-42F : 0x1p-39F);
        break;
      case Kind::kHuge:
        out[i] = g * 0x1p+40F;
        break;
      case Kind::kOneSigned:
        out[i] = 1.0F - 0x1p-12F * static_cast<float>(below(4));
        break;
      case Kind::kCount:
        break;
    }
  }
  return out;
}

std::vector<std::uint8_t> Random::bytes(std::size_t n) {
  std::vector<std::uint8_t> out(n);
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(bits());
  return out;
}

const std::vector<std::unique_ptr<Backend>>& all_cpu_backends() {
  static const std::vector<std::unique_ptr<Backend>> backends = make_all_cpu_backends();
  return backends;
}

const std::vector<std::unique_ptr<Backend>>& all_backends() {
  static const std::vector<std::unique_ptr<Backend>> backends = make_all_backends();
  return backends;
}

const std::vector<std::unique_ptr<Backend>>& all_backends_in_one_form() {
  static const std::vector<std::unique_ptr<Backend>> backends = [] {
    auto some = make_optional_backends();
    if (some.size() > 1) some.resize(1);
    if (named_backend() == nullptr) std::ranges::move(make_all_cpu_backends(), std::back_inserter(some));
    return some;
  }();
  return backends;
}

Backend& reference() {
  static const std::unique_ptr<Backend> backend = make_oracle_backend();
  return *backend;
}

std::unique_ptr<Buffer> poisoned(Backend& backend, std::size_t n) {
  return backend.make_vector(std::vector<float>(n + kGuard, std::bit_cast<float>(kPoison)));
}

std::unique_ptr<Buffer> guarded(Backend& backend, std::span<const float> values) {
  std::vector<float> all(values.size() + kGuard, std::bit_cast<float>(kPoison));
  std::ranges::copy(values, all.begin());
  return backend.make_vector(all);
}

std::vector<float> host_copy(Backend& backend, Buffer& buffer) {
  std::vector<float> out(buffer.size());
  backend.read(buffer.data(), out);
  return out;
}

::testing::AssertionResult same_bits(std::span<const float> actual, std::span<const float> expected, std::size_t n,
                                     const std::string& what) {
  const auto bits_of = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (std::size_t i = 0; i < n; ++i) {
    if (bits_of(actual[i]) == bits_of(expected[i])) continue;
    return ::testing::AssertionFailure() << what << ": element " << i << " is " << actual[i] << " (" << std::hex
                                         << bits_of(actual[i]) << "), expected " << expected[i] << " ("
                                         << bits_of(expected[i]) << ")";
  }
  for (std::size_t i = n; i < n + kGuard; ++i) {
    if (bits_of(actual[i]) == kPoison) continue;
    return ::testing::AssertionFailure() << what << ": wrote " << i - n << " floats beyond the end";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace nibble::kernels::test
