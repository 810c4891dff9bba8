// Evaluates the contract's elementary functions on every finite f32 of their domain (about a minute): the largest error
// against libm in f64, and the SHA-256 of all results, which must be the same on every machine. Offline; the unit tests
// take a stride of the same floats.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/sha256.h"
#include "format/contract_math.h"

namespace {

using namespace nibble::format;

struct Function {
  const char* name;
  float (*f)(float);
  double (*truth)(double);
  float limit;  // the domain is [-limit, limit]
};

double true_sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double true_gelu(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

const Function kFunctions[] = {
    {"exp2_poly", exp2_poly, [](double x) { return std::exp2(x); }, 0.5F},
    {"sigmoid", sigmoid, true_sigmoid, 87.0F},
    {"silu", silu, [](double x) { return x * true_sigmoid(x); }, 87.0F},
    {"gelu_tanh", gelu_tanh, true_gelu, 10.0F},
};

// Relative error; absolute below 2^-20, where gelu's tail loses its relative accuracy to the rounding of u.
void measure(const Function& function) {
  nibble::Sha256 digest;
  std::vector<float> results;
  double worst = 0;
  float worst_at = 0;
  const std::uint32_t last = float_bits(function.limit);
  for (std::uint64_t i = 0; i <= 2 * std::uint64_t{last} + 1; ++i) {
    const float x = bits_float(static_cast<std::uint32_t>(i / 2) | (i % 2 != 0 ? 0x80000000U : 0U));
    results.push_back(function.f(x));
    const double truth = function.truth(x);
    const double error = std::abs(results.back() - truth) / std::max(std::abs(truth), 0x1p-20);
    if (error > worst) {
      worst = error;
      worst_at = x;
    }
    if (results.size() == 1 << 20 || i == 2 * std::uint64_t{last} + 1) {
      digest.update(std::as_bytes(std::span(results)));
      results.clear();
    }
  }
  std::printf("%-10s on [-%g, %g]: largest error 2^%.2f at %a\n           sha256 %s\n", function.name, function.limit,
              function.limit, std::log2(worst), worst_at, nibble::to_hex(digest.finish()).c_str());
  std::fflush(stdout);
}

}  // namespace

int main() {
  for (const Function& function : kFunctions) measure(function);
}
