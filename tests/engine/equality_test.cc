// One answer: the digest of every logit of a run is the same over instruction sets, threads, prefill chunks, cache
// states and backends. On small random models; tools/prove_equality does the same on real ones.
#include <gtest/gtest.h>

#include <set>

#include "engine/generate.h"
#include "engine/loaded_model.h"
#include "kernels/cpu/detect.h"
#include "tests/engine/tiny_model.h"

namespace nibble::engine {
namespace {

using nibble::testing::TinySpec;
using nibble::testing::write_tiny_model;

std::vector<std::int32_t> fixed_prompt(int n) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < n; ++i) prompt.push_back((i * 37 + i * i % 11) % 256);
  return prompt;
}

std::unique_ptr<LoadedModel> load_on(const std::string& path, const LoadOptions& options) {
  auto loaded = load(path, options);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().to_string());
  return loaded.ok() ? std::move(*loaded) : nullptr;
}

Completion complete(LoadedModel& loaded, Session& session, bool digest_prompt) {
  GenerateRequest request;
  request.prompt = fixed_prompt(150);  // crosses a split of 128 keys
  request.max_tokens = 12;
  request.ignore_eos = true;
  request.digest_prompt = digest_prompt;
  auto completion = generate(session, loaded.tokenizer, request);
  EXPECT_TRUE(completion.ok()) << (completion.ok() ? "" : completion.error().to_string());
  return completion.ok() ? std::move(*completion) : Completion{};
}

Completion complete_cold(LoadedModel& loaded, int chunk, bool digest_prompt) {
  auto session = Session::create(*loaded.model, {.n_ctx = 200, .prefill_chunk = chunk});
  EXPECT_TRUE(session.ok());
  return complete(loaded, **session, digest_prompt);
}

std::vector<TinySpec> specs() {
  return {
      {.architecture = "llama"},
      {.architecture = "qwen2", .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .own_head = true},
      {.architecture = "llama", .d_model = 96, .d_ff = 208, .n_heads = 2, .n_kv_heads = 2, .head_dim = 80},
      {.architecture = "llama", .d_model = 256, .d_ff = 512, .head_dim = 64, .lane = Lane::kKquant, .own_head = true},
      {.architecture = "qwen2", .d_model = 256, .d_ff = 288, .n_heads = 4, .head_dim = 64, .lane = Lane::kMixed},
      {.architecture = "qwen2",
       .n_layers = 1,
       .d_model = 272,
       .d_ff = 592,
       .n_heads = 4,
       .head_dim = 64,
       .muser_keys = true},
      {.muser_keys = true, .input_scales = true, .metadata = [](GgufWriter& w) { w.add_string(kContractKey, "w4a4"); }},
      {.architecture = "qwen3", .d_model = 96, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .own_head = true},
      {.architecture = "llama", .d_model = 208, .d_ff = 144, .own_head = true, .fp8 = true},
      {.architecture = "qwen2",
       .n_layers = 1,
       .n_heads = 4,
       .n_kv_heads = 2,
       .head_dim = 64,
       .muser_keys = true,
       .fp8 = true},
      // Windows of one position, of the prompt's chunk, and beyond a split of keys; the first has no other layers.
      {.architecture = "gemma3", .window = 1},
      {.architecture = "gemma3", .n_layers = 3, .d_ff = 288, .n_kv_heads = 3, .window = 64, .window_pattern = 2},
      {.architecture = "gemma3",
       .n_layers = 3,
       .d_model = 256,
       .d_ff = 512,
       .n_heads = 2,
       .head_dim = 256,
       .lane = Lane::kKquant,
       .window = 129,
       .window_pattern = 3}};
}

class Equality : public ::testing::TestWithParam<int> {
 protected:
  std::string path() const {
    return write_tiny_model(specs()[GetParam()], "equality_" + std::to_string(GetParam()) + ".gguf");
  }
};

TEST_P(Equality, EveryIsaThreadCountAndChunkGivesTheLogitsOfTheReference) {
  const std::string model = path();
  const auto reference = load_on(model, {.backend = "reference"});
  const Completion expected = complete_cold(*reference, 64, true);
  ASSERT_EQ(expected.position_digests.size(), 150u + 11u);
  for (const std::string_view isa : kernels::cpu::isa_names()) {
    for (const int threads : {1, 2, 3}) {
      const auto loaded =
          load_on(model, {.backend = "cpu", .machine = {.isa = std::string(isa), .n_threads = threads}});
      for (const int chunk : {1, 7, 64, 150}) {
        const Completion got = complete_cold(*loaded, chunk, true);
        EXPECT_EQ(got.tokens, expected.tokens) << isa << " threads " << threads << " chunk " << chunk;
        EXPECT_EQ(got.position_digests, expected.position_digests)
            << isa << " threads " << threads << " chunk " << chunk;
      }
    }
  }
}

TEST_P(Equality, APrefixInTheCacheChangesNothing) {
  const auto loaded = load_on(path(), {});
  const Completion cold = complete_cold(*loaded, 64, false);
  for (const int kept : {1, 63, 100, 128, 149}) {
    auto session = Session::create(*loaded->model, {.n_ctx = 200, .prefill_chunk = 64});
    ASSERT_TRUE(session.ok());
    std::vector<std::int32_t> other = fixed_prompt(kept);
    other.push_back(255);  // differs from the prompt from here on
    ASSERT_TRUE((*session)->prefill(other).ok());
    const Completion warm = complete(*loaded, **session, false);
    EXPECT_EQ(warm.reused_positions, kept);
    EXPECT_EQ(warm.logits_digest, cold.logits_digest) << kept;
    const Completion again = complete(*loaded, **session, false);  // the same request once more
    EXPECT_EQ(again.reused_positions, 149);
    EXPECT_EQ(again.logits_digest, cold.logits_digest);
  }
}

// The cache of a layer with a window forgets. Going back within it changes nothing, going back beyond it starts anew.
TEST(Windows, GoingBackIsRightOrStartsAnew) {
  const std::string path = write_tiny_model(
      {.architecture = "gemma3", .n_layers = 3, .context_length = 1024, .window = 150, .window_pattern = 2},
      "windows.gguf");
  const std::vector<std::int32_t> prompt = fixed_prompt(900);
  const auto logits_of = [](Session& session, std::span<const std::int32_t> tokens) {
    EXPECT_TRUE(session.prefill(tokens).ok());
    return std::vector<float>(session.logits().begin(), session.logits().end());
  };
  const auto session_on = [](LoadedModel& loaded) {
    auto session = Session::create(*loaded.model, {.n_ctx = 1000, .prefill_chunk = 32});
    EXPECT_TRUE(session.ok());
    return std::move(*session);
  };
  const auto loaded = load_on(path, {.backend = "cpu"}), reference = load_on(path, {.backend = "reference"});
  const auto session = session_on(*loaded);
  EXPECT_LT(session->cache_bytes(), session_on(*reference)->cache_bytes());
  EXPECT_EQ(logits_of(*session, prompt), logits_of(*session_on(*reference), prompt));
  // Three splits: positions from 900 - 384 on are there, and the first new position sees 149 before it.
  for (const auto& [kept, reused] : {std::pair{665, 665}, {899, 899}, {500, 0}}) {
    std::vector<std::int32_t> other(prompt.begin(), prompt.begin() + kept);
    other.insert(other.end(), 20, 255);
    EXPECT_EQ(logits_of(*session, other), logits_of(*session_on(*reference), other)) << kept;
    EXPECT_EQ(session->reused_positions(), reused) << kept;
    logits_of(*session, prompt);
  }
}

// A model that the three can run has other logits in each.
TEST(Contracts, AreKeptApart) {
  const std::string path = write_tiny_model({.muser_keys = true, .input_scales = true}, "contracts.gguf");
  std::set<std::string> digests;
  for (const char* contract : {"nc1", "nc1-f16", "w4a4"}) {
    const auto loaded = load_on(path, {.backend = "cpu", .contract = contract});
    EXPECT_EQ(loaded->contract, contract);
    digests.insert(complete_cold(*loaded, 64, false).logits_digest);
  }
  EXPECT_EQ(digests.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Families, Equality, ::testing::Range(0, static_cast<int>(specs().size())));

}  // namespace
}  // namespace nibble::engine
