#include "quantize/nvfp4_recipe.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"
#include "format/nvfp4.h"

namespace nibble {
namespace {

constexpr std::size_t kGroup = 16;
constexpr std::uint8_t kLargestScale = 0x7E;  // 448

using Codes = std::array<std::uint8_t, kGroup>;

float group_amax(const float* weights) {
  std::uint32_t amax = 0;  // magnitudes of finite floats are ordered like their bits
  for (std::size_t i = 0; i < kGroup; ++i) amax = std::max(amax, format::abs_bits(weights[i]));
  return format::bits_float(amax);
}

// The codes of one group, divided by the rounded scale: multiplying by a reciprocal would move ties.
Codes encode_group(const float* weights, float divisor) {
  Codes codes{};
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float scaled = weights[i] / divisor;
    const std::uint32_t magnitude = format::e2m1_encode(scaled) & 7U;
    codes[i] = static_cast<std::uint8_t>(magnitude | (scaled < 0 ? 8U : 0U));  // not the sign bit: -0 is code 0
  }
  return codes;
}

// In f64 and in order: the choice between two scales must not depend on who compiled it.
double squared_error(const float* weights, const Codes& codes, float divisor) {
  double sum = 0;
  for (std::size_t i = 0; i < kGroup; ++i) {
    const double difference =
        static_cast<double>(weights[i]) - static_cast<double>(format::e2m1_decode(codes[i])) * divisor;
    sum += difference * difference;
  }
  return sum;
}

struct Candidates {
  std::array<std::uint8_t, 16> scales{};
  std::size_t count = 0;
  void add(int scale) {
    const auto byte = static_cast<std::uint8_t>(std::clamp<int>(scale, 0x01, kLargestScale));
    if (count == 0 || scales[count - 1] != byte) scales[count++] = byte;
  }
};

// In increasing order. E4M3 bytes of one sign are ordered like their values: eight steps are an octave, so that
// 3/2 of a scale is four or five steps up; one step down lets the largest weight saturate for the sake of the others.
Candidates candidates_of(Recipe recipe, float amax, float tensor_scale) {
  Candidates candidates;
  const std::uint8_t six = max_block_scale(amax, tensor_scale);
  if (recipe == Recipe::kMax || amax == 0) {
    candidates.add(six);
    return candidates;
  }
  const std::uint8_t four = max_block_scale(1.5F * amax, tensor_scale);
  if (recipe == Recipe::kFourOverSix) {
    candidates.add(six);
    candidates.add(four);
    return candidates;
  }
  for (int scale = six - 2; scale <= four; ++scale) candidates.add(scale);
  return candidates;
}

void pack(const Codes& codes, std::uint8_t* out) {
  for (std::size_t i = 0; i < kGroup / 2; ++i) out[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
}

}  // namespace

std::string_view recipe_name(Recipe recipe) {
  switch (recipe) {
    case Recipe::kMax:
      return "max";
    case Recipe::kFourOverSix:
      return "4over6";
    case Recipe::kMse:
      return "mse";
  }
  return "";
}

std::optional<Recipe> find_recipe(std::string_view name) {
  for (const Recipe recipe : {Recipe::kMax, Recipe::kFourOverSix, Recipe::kMse}) {
    if (name == recipe_name(recipe)) return recipe;
  }
  return std::nullopt;
}

float tensor_scale_of(Recipe recipe, float amax) {
  if (amax == 0) return 1.0F;
  return amax / (recipe == Recipe::kFourOverSix ? 6.0F * 256.0F : 6.0F * 448.0F);
}

std::uint8_t max_block_scale(float amax, float tensor_scale) {
  const float scale = amax / (6.0F * tensor_scale);
  return format::e4m3_encode(scale == 0 ? 1.0F : std::clamp(scale, 0x1p-9F, format::kE4m3Max));
}

void quantize_row(Recipe recipe, std::span<const float> weights, float tensor_scale, std::span<std::uint8_t> codes,
                  std::span<std::uint8_t> scales) {
  NIBBLE_CHECK(
      weights.size() % kGroup == 0 && codes.size() == weights.size() / 2 && scales.size() == weights.size() / kGroup,
      "a row whose codes or scales have another width");
  for (std::size_t group = 0; group < scales.size(); ++group) {
    const float* from = weights.data() + group * kGroup;
    const Candidates candidates = candidates_of(recipe, group_amax(from), tensor_scale);
    Codes best{};
    double least = 0;
    for (std::size_t i = 0; i < candidates.count; ++i) {
      const float divisor = format::e4m3_decode(candidates.scales[i]) * tensor_scale;
      const Codes tried = encode_group(from, divisor);
      const double error = candidates.count == 1 ? 0 : squared_error(from, tried, divisor);
      if (i == 0 || error < least) {
        best = tried;
        least = error;
        scales[group] = candidates.scales[i];
      }
    }
    pack(best, codes.data() + group * kGroup / 2);
  }
}

}  // namespace nibble
