// Which backend "auto" is for a model, with entries that lack what a GPU lacks.
#include "kernels/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cpu/cpu_backend.h"

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;

// Floats and NVFP4 under a11, no Ability, memory for 1,000 bytes of weights, which take twice the file's. Runs nothing.
class Limited final : public Backend {
 public:
  std::string_view name() const override { return "limited"; }
  std::string description() const override { return "limited"; }
  bool takes(DType dtype) const override { return dtype == DType::kNVFP4_E2M1 || dtype == DType::kF32; }
  std::uint64_t weight_bytes(const WeightShape& weights) const override { return 2 * weights.bytes; }
  Status admit(const MemoryNeed& need) override { return check_fits(need, 1000, 1000, "a small machine"); }
  std::unique_ptr<Buffer> make_buffer(std::size_t) override { return {}; }
  std::unique_ptr<Buffer> make_vector(std::span<const float>) override { return {}; }
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource&) override { return std::unique_ptr<Linear>(); }
  Result<std::unique_ptr<Embedding>> make_embedding(const WeightSource&) override {
    return std::unique_ptr<Embedding>();
  }
  std::unique_ptr<LinearInput> make_linear_input(int, int) override { return {}; }
  std::unique_ptr<KvCache> make_kv_cache(const KvShape&) override { return {}; }
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float>, int, bool) override { return {}; }
  void begin_step(int) override {}
  std::span<const std::uint8_t> end_step() override { return {}; }
  void embed(const Embedding&, std::span<const std::int32_t>, float*) override {}
  void rms_norm(const float*, const float*, int, int, float, float*) override {}
  void prepare_input(const float*, int, LinearInput&) override {}
  void linear(const LinearInput&, const Linear&, const float*, float*) override {}
  void rope(float*, int, int, std::span<const TokenRow>, const RopeTable&) override {}
  void store_kv(const float*, const float*, std::span<const TokenRow>, int) override {}
  void attention(const float*, std::span<const TokenRow>, int, const AttentionShape&, float*) override {}
  void silu_mul(const float*, const float*, std::size_t, float*) override {}
  void add(float*, const float*, std::size_t) override {}
  void add_rows(const float*, const float*, std::span<const std::int32_t>, int, float*) override {}
  void read(const float*, std::span<float>) override {}
};

Result<std::unique_ptr<Backend>> make_limited(const BackendOptions&) {
  return std::unique_ptr<Backend>(std::make_unique<Limited>());
}
Result<std::unique_ptr<Backend>> make_broken(const BackendOptions&) {
  return Error{.message = "its canary is dead"};
}
Result<std::unique_ptr<Backend>> make_cpu(const BackendOptions& options) {
  return make_cpu_backend({.isa = options.isa, .n_threads = 1});
}
std::string usable() {
  return "";
}
std::string absent() {
  return "not here";
}

constexpr BackendEntry kEntries[] = {
    {"absent", make_broken, absent}, {"limited", make_limited, usable}, {"cpu", make_cpu, usable}};

TEST(ChooseBackend, TakesTheFirstThatCanDoAll) {
  const auto chosen = choose_backend(kEntries, {}, {.weights = {{DType::kNVFP4_E2M1}, {DType::kF32, 1, 125, 500}}});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->backend->name(), "limited");
  EXPECT_EQ(chosen->passed_over, "");  // one that is not there is not worth a word
}

TEST(ChooseBackend, PassesOverWhatLacksSomethingAndSaysWhat) {
  const std::pair<BackendNeeds, const char*> cases[] = {
      {{.weights = {{DType::kF32}, {DType::kQ4_K}}}, "limited has no kernels for weights in Q4_K"},
      {{.activations = ActivationFormat::kW4A4}, "limited has no kernels for activations in w4a4"},
      {{.activations = ActivationFormat::kA16Q8}, "limited has no kernels for activations in a16q8"},
      {{.abilities = {Ability::kGeluGate}}, "limited does not have GELU gates"},
      {{.weights = {{DType::kF32, 1, 63, 252}, {DType::kF32, 1, 63, 252}}}, "limited has too little memory"}};
  for (const auto& [needs, why] : cases) {
    const auto chosen = choose_backend(kEntries, {}, needs);
    ASSERT_TRUE(chosen.ok()) << why;
    EXPECT_EQ(chosen->backend->name(), "cpu");
    EXPECT_THAT(chosen->passed_over, HasSubstr(why));
  }
}

TEST(ChooseBackend, OneThatCannotBeMadeIsPassedOverAloud) {
  constexpr BackendEntry kBroken[] = {{"broken", make_broken, usable}, {"cpu", make_cpu, usable}};
  const auto chosen = choose_backend(kBroken, {}, {});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->passed_over, "broken cannot be used: its canary is dead");
  const auto none = choose_backend(std::span(kBroken).first(1), {}, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "its canary is dead");
  const auto unfit = choose_backend(std::span(kEntries).first(2), {}, {.weights = {{DType::kQ4_K}}});
  ASSERT_FALSE(unfit.ok());
  EXPECT_EQ(unfit.error().found, "limited has no kernels for weights in Q4_K");
}

// What the user asked for by name is never a reason to take another backend.
TEST(ChooseBackend, AWrongInstructionSetIsNotPassedOver) {
  const BackendNeeds needs{.weights = {{DType::kQ4_K}}};
  const auto named = choose_backend(backend_entries(), {.isa = "abacus"}, needs);
  ASSERT_FALSE(named.ok());
  EXPECT_THAT(named.error().message, HasSubstr("abacus"));
  ASSERT_EQ(setenv("NIBBLE_ISA", "abacus", 1), 0);
  const auto chosen = choose_backend(backend_entries(), {}, needs);
  std::vector<Result<std::unique_ptr<Backend>>> made;
  for (const char* name : {"auto", "cpu", "reference"}) made.push_back(make_backend(name, {}));
  const bool is_overruled = make_backend("cpu", {.isa = "scalar"}).ok();
  ASSERT_EQ(unsetenv("NIBBLE_ISA"), 0);
  ASSERT_FALSE(chosen.ok());
  EXPECT_THAT(chosen.error().message, HasSubstr("NIBBLE_ISA: unknown instruction set 'abacus'"));
  for (const auto& backend : made) {
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.error().message, chosen.error().message);
  }
  EXPECT_TRUE(is_overruled);
}

TEST(ChooseBackend, TheCpuCanDoEverything) {
  const auto chosen = choose_backend(std::span(backend_entries()).last(2), {},
                                     {.activations = ActivationFormat::kW4A4,
                                      .weights = {{DType::kNVFP4_E2M1}, {DType::kQ6_K}},
                                      .abilities = {Ability::kScale, Ability::kGeluGate, Ability::kWindow}});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->backend->name(), "cpu");
}

}  // namespace
}  // namespace nibble::kernels
