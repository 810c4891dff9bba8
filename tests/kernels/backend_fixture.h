// Random and adversarial operands, and the comparison of a backend with the reference, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace nibble::kernels::test {

// What a batch of floats looks like. Each kind exercises another branch of the contract.
enum class Kind { kGaussian, kOutliers, kZeros, kTiny, kHuge, kOneSigned, kCount };

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint32_t bits() { return static_cast<std::uint32_t>(engine_()); }
  int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }
  float gaussian();
  std::vector<float> floats(std::size_t n, Kind kind);
  std::vector<std::uint8_t> bytes(std::size_t n);

 private:
  std::mt19937_64 engine_;
};

// Every usable instruction set with 1, 2 and 3 threads.
const std::vector<std::unique_ptr<Backend>>& all_cpu_backends();
// Those, and every other backend that can be used here. NIBBLE_TEST_BACKEND=cuda: that one only, and a failure where it
// cannot be used.
const std::vector<std::unique_ptr<Backend>>& all_backends();
// The value of NIBBLE_TEST_BACKEND, or null.
const char* named_backend();
// Of all_backends() those that are not the CPU's, made anew: a test that changes what a backend keeps wants its own.
struct BackendForm {
  bool has_graphs;
  const char* route;
};
constexpr BackendForm kBackendForms[] = {{true, "auto"}, {false, "auto"}, {false, "integers"}};
std::vector<std::unique_ptr<Backend>> make_optional_backends(std::span<const BackendForm> forms = kBackendForms);
// all_backends(), in one form each that is not the CPU's: for ops that the forms do not differ in.
const std::vector<std::unique_ptr<Backend>>& all_backends_in_one_form();
Backend& reference();
// Tests of an op that an Ability is about leave out a backend without it.
bool has_every_ability(const Backend& backend);

// A buffer with `n` floats of room and a guard of kGuard floats beyond, poisoned throughout.
constexpr std::size_t kGuard = 64;
std::unique_ptr<Buffer> poisoned(Backend& backend, std::size_t n);
// The same, with values in its first floats.
std::unique_ptr<Buffer> guarded(Backend& backend, std::span<const float> values);
std::vector<float> host_copy(Backend& backend, Buffer& buffer);

// Same bits in the first n floats, and nothing written beyond.
::testing::AssertionResult same_bits(std::span<const float> actual, std::span<const float> expected, std::size_t n,
                                     const std::string& what);

}  // namespace nibble::kernels::test
