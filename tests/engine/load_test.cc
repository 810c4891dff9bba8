// What a model file must hold to be run, and the words with which anything else is refused.
#include <gtest/gtest.h>

#include "engine/check_model.h"
#include "engine/generate.h"
#include "engine/loaded_model.h"
#include "tests/engine/tiny_model.h"

namespace nibble::engine {
namespace {

using nibble::testing::add_int_array;
using nibble::testing::TinySpec;
using nibble::testing::write_tiny_model;

Error refused(const TinySpec& spec, const LoadOptions& options = {}) {
  const std::string path = write_tiny_model(spec, "load.gguf");
  const auto loaded = load(path, options);
  EXPECT_FALSE(loaded.ok());
  return loaded.ok() ? Error{.message = ""} : loaded.error();
}

std::unique_ptr<LoadedModel> accepted(const TinySpec& spec) {
  auto loaded = load(write_tiny_model(spec, "load.gguf"), {});
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().to_string());
  return loaded.ok() ? std::move(*loaded) : nullptr;
}

TEST(Load, EveryFamilyWithTiedAndOwnHead) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma3"}) {
    for (const bool own_head : {false, true}) {
      const auto loaded = accepted({.architecture = architecture, .own_head = own_head});
      ASSERT_NE(loaded, nullptr);
      EXPECT_EQ(loaded->contract, "nc1");
      EXPECT_EQ(loaded->model->weights.tied_output, !own_head);
    }
  }
}

TEST(Load, UnknownFamilyNamesTheKnownOnes) {
  const Error error = refused({.architecture = "mamba"});
  EXPECT_EQ(error.key, "general.architecture");
  EXPECT_EQ(error.found, "mamba");
  EXPECT_EQ(error.expected, "llama, qwen2, qwen3, gemma3");
}

TEST(Load, MissingTensorsAreNamed) {
  for (const char* name : {"token_embd.weight", "blk.1.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight",
                           "blk.1.attn_k.bias"}) {
    const Error error = refused({.architecture = "qwen2", .skip_tensor = name});
    EXPECT_EQ(error.tensor, name) << error.to_string();
    EXPECT_FALSE(error.file.empty());
  }
}

TEST(Load, EachFamilyAsksForItsOwnNorms) {
  for (const char* name : {"blk.1.attn_q_norm.weight", "blk.0.attn_k_norm.weight", "blk.0.post_attention_norm.weight",
                           "blk.1.post_ffw_norm.weight"}) {
    EXPECT_EQ(refused({.architecture = "gemma3", .skip_tensor = name}).tensor, name);
  }
  EXPECT_EQ(refused({.architecture = "qwen3", .extra_tensor = "blk.0.post_ffw_norm.weight"}).tensor,
            "blk.0.post_ffw_norm.weight");
}

TEST(Load, GemmaHasWindowsAndNoSoftCaps) {
  const auto loaded = accepted({.architecture = "gemma3", .n_layers = 7, .window = 24});
  ASSERT_NE(loaded, nullptr);
  const model::Config& c = loaded->model->config;
  for (int layer = 0; layer < 7; ++layer) EXPECT_EQ(c.has_window(layer), layer != 5);
  EXPECT_EQ(c.window_rope.freq_base, 10000);
  EXPECT_FALSE(accepted({.architecture = "gemma3"})->model->config.has_window(0));
  const auto with = [](const char* key, float value) {
    return TinySpec{.architecture = "gemma3", .metadata = [=](GgufWriter& w) { w.add_f32(key, value); }};
  };
  for (const char* key : {"gemma3.attn_logit_softcapping", "gemma3.final_logit_softcapping"}) {
    EXPECT_EQ(refused(with(key, 30)).key, key);
    EXPECT_NE(accepted(with(key, 0)), nullptr);
  }
  EXPECT_EQ(refused(with("gemma3.rope.freq_base_swa", 0)).key, "gemma3.rope.freq_base_swa");
}

TEST(Load, GemmaNamesItsRotaryBases) {
  const Error error = refused({.architecture = "gemma3", .freq_base = 0});
  EXPECT_EQ(error.key, "gemma3.rope.freq_base");
  EXPECT_EQ(error.found, "absent");
  EXPECT_EQ(refused({.architecture = "gemma3",
                     .freq_base = 0,
                     .metadata = [](GgufWriter& w) { w.add_f32("gemma3.rope.freq_base", 0); }})
                .found,
            "0");
  const auto loaded = accepted({.architecture = "gemma3", .freq_base = 0, .metadata = [](GgufWriter& w) {
                                  w.add_f32("gemma3.rope.global.freq_base", 5e5F);
                                  w.add_f32("gemma3.rope.local.freq_base", 3e4F);
                                }});
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(loaded->model->config.rope.freq_base, 5e5);
  EXPECT_EQ(loaded->model->config.window_rope.freq_base, 3e4);
}

TEST(Load, ATensorWithoutAPlaceIsRefused) {
  const Error error = refused({.extra_tensor = "blk.0.attn_q_norm.weight"});
  EXPECT_EQ(error.tensor, "blk.0.attn_q_norm.weight") << error.to_string();
}

TEST(Load, VocabularyAndEmbeddingMustAgree) {
  const Error error = refused({.vocab_extra = 3});
  EXPECT_EQ(error.tensor, "token_embd.weight");
  EXPECT_EQ(error.found, "263 rows");
  EXPECT_NE(error.expected.find("260"), std::string::npos);
}

TEST(Load, HyperParametersAreChecked) {
  EXPECT_EQ(refused({.n_heads = 3, .n_kv_heads = 2}).key, "llama.attention.head_count");
  EXPECT_EQ(refused({.context_length = 0}).key, "llama.context_length");
  EXPECT_EQ(refused({.metadata = [](GgufWriter& w) { w.add_u32("llama.expert_count", 8); }}).key, "llama.expert_count");
  EXPECT_EQ(refused({.metadata = [](GgufWriter& w) { w.add_f32("llama.rope.freq_base", -1); }}).key,
            "llama.rope.freq_base");
  EXPECT_EQ(refused({.metadata = [](GgufWriter& w) { w.add_string("llama.rope.scaling.type", "longrope"); }}).key,
            "llama.rope.scaling.type");
  EXPECT_EQ(refused({.metadata = [](GgufWriter& w) { w.add_u32("llama.rope.dimension_count", 49); }}).key,
            "llama.rope.dimension_count");
  EXPECT_EQ(refused({.metadata = [](GgufWriter& w) { w.add_u32("llama.vocab_size", 7); }}).key, "llama.vocab_size");
}

// What converters are known to write, with the values that ask for nothing.
TEST(Load, KeysThatAskForNothingAreNoFault) {
  const auto llama = [](GgufWriter& w) {
    for (const char* zero : {"llama.expert_count", "llama.expert_used_count", "llama.attention.sliding_window"}) {
      w.add_u32(zero, 0);
    }
    w.add_bool("llama.attention.causal", true);
    w.add_bool("llama.use_parallel_residual", false);
    w.add_bool("llama.rope.scaling.finetuned", true);
    w.add_u32("llama.rope.scaling.original_context_length", 64);
    w.add_f32("llama.rope.scaling.yarn_beta_fast", 32);
    w.add_f32("llama.rope.scaling.yarn_attn_factor", 1);
    w.add_f32("llama.logit_scale", 1);
    w.add_string("llama.tensor_data_layout", "Meta AI original pth");
    w.add_u32("llama.attention.head_dim", 48);
    w.add_f32("llama.attention.layer_norm_epsilon", 1e-5F);
    add_int_array(w, "llama.rope.dimension_sections", {0, 0, 0, 0});
  };
  EXPECT_NE(accepted({.metadata = llama}), nullptr);
  EXPECT_NE(accepted({.architecture = "gemma3",
                      .metadata =
                          [](GgufWriter& w) {
                            w.add_u32("gemma3.mm.tokens_per_image", 256);
                            w.add_u32("gemma3.vision.attention.head_count", 16);
                          }}),
            nullptr);
}

TEST(Load, AKeyThatMayChangeTheArithmeticIsRefused) {
  for (const std::string family : {"llama", "qwen2", "qwen3", "gemma3"}) {
    const Error error = refused({.architecture = family, .metadata = [&](GgufWriter& w) {
                                   w.add_f32(family + ".attention.something_new", 0.5F);
                                 }});
    EXPECT_EQ(error.key, family + ".attention.something_new");
    EXPECT_EQ(error.found, "0.5");
    EXPECT_NE(error.hint.find("--remove-metadata"), std::string::npos);
  }
  const auto key_with = [](const std::string& key, auto add) {
    return refused({.metadata = [&](GgufWriter& w) { add(w, key); }});
  };
  const auto u32 = [](GgufWriter& w, const std::string& key) { w.add_u32(key, 7); };
  for (const char* key : {"llama.attention.head_dim", "llama.attention.sliding_window", "llama.mm.tokens_per_image",
                          "llama.expert_group_count", "llama.pooling_type", "llama.rope.scaling.yarn_attn_factor"}) {
    EXPECT_EQ(key_with(key, u32).key, key);
  }
  const Error layout =
      key_with("llama.tensor_data_layout", [](GgufWriter& w, const std::string& key) { w.add_string(key, "other\n"); });
  EXPECT_EQ(layout.found, "\"other\\x0a\"");
  EXPECT_EQ(layout.expected, "absent or \"Meta AI original pth\"");
  const Error sections = key_with("llama.rope.dimension_sections", [](GgufWriter& w, const std::string& key) {
    add_int_array(w, key, {16, 24, 24, 0});
  });
  EXPECT_EQ(sections.found, "array of I32 with 4 elements");
}

TEST(Load, AFactorWithoutATypeScalesLinearly) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    const auto loaded = accepted({.metadata = [&](GgufWriter& w) { w.add_f32(key, 4); }});
    ASSERT_NE(loaded, nullptr);
    EXPECT_EQ(loaded->model->config.rope.scaling, model::RopeScaling::kLinear);
    EXPECT_EQ(loaded->model->config.rope.factor, 4);
  }
  const auto none = accepted({.metadata = [](GgufWriter& w) {
    w.add_string("llama.rope.scaling.type", "none");
    w.add_f32("llama.rope.scaling.factor", 4);
  }});
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(none->model->config.rope.scaling, model::RopeScaling::kNone);
}

// Receipts and replays carry the name of what was computed.
TEST(Load, AContractAboutNvfp4NeedsNvfp4Weights) {
  const TinySpec kquant{.d_model = 256, .d_ff = 512, .head_dim = 64, .lane = Lane::kKquant};
  for (const char* contract : {"nc1-f16", "w4a4"}) {
    const Error asked = refused(kquant, {.backend = "reference", .contract = contract});
    EXPECT_EQ(asked.found, "no NVFP4 weights");
    EXPECT_NE(asked.hint.find("nk1"), std::string::npos);
  }
  TinySpec from_the_lane = kquant;
  from_the_lane.metadata = [](GgufWriter& w) { w.add_string("muser.weight_precision", "q4_k_xl"); };
  EXPECT_EQ(accepted(from_the_lane)->contract, "nk1");
}

TEST(Load, OtherContractsAreAskedForByNameOrRefused) {
  EXPECT_EQ(refused({}, {.contract = "nc2"}).found, "nc2");
  const auto asked_for = load(write_tiny_model({}, "load.gguf"), {.backend = "reference", .contract = "nc1-f16"});
  ASSERT_TRUE(asked_for.ok());
  EXPECT_EQ((*asked_for)->contract, "nc1-f16");
  const Error bare = refused({}, {.backend = "reference", .contract = "w4a4"});
  EXPECT_EQ(bare.tensor, "blk.0.attn_q.weight");  // the first of the file
  EXPECT_EQ(bare.found, "a weight without one");
  const TinySpec kquant{.d_model = 256, .d_ff = 512, .head_dim = 64, .lane = Lane::kKquant};
  EXPECT_EQ(refused(kquant, {.backend = "reference", .contract = "w4a4"}).found, "no NVFP4 weights");
}

// It promises no bits, so nobody gets it who did not ask for it, and no backend that has other arithmetic lends its
// name.
TEST(Load, NativeIsAGpusAndNeverChosenByAFile) {
  const TinySpec kquant{.d_model = 256, .d_ff = 512, .head_dim = 64, .lane = Lane::kKquant};
  const TinySpec with_scales{.muser_keys = true, .input_scales = true};
  for (const char* contract : {"native", "native-fp4"}) {
    for (const char* backend : {"cpu", "reference"}) {
      const Error other = refused(with_scales, {.backend = backend, .contract = contract});
      EXPECT_EQ(other.found, std::string("backend ") + backend);
      EXPECT_NE(other.message.find(std::string("contract ") + contract + " is"), std::string::npos) << other.message;
      EXPECT_NE(other.hint.find("{backend=cuda}"), std::string::npos);
    }
    if (!kernels::make_backend("cuda", {}).ok()) {  // what cannot be had is not to be had elsewhere
      const Error absent = refused(with_scales, {.backend = "cuda", .contract = contract});
      EXPECT_EQ(absent.hint.find("{backend="), std::string::npos) << absent.hint;
      EXPECT_NE(refused(with_scales, {.backend = "cuda"}).expected, "cpu");
    }
    EXPECT_EQ(refused(kquant, {.contract = contract}).found, "no NVFP4 weights");
    const TinySpec declared{.muser_keys = true,
                            .metadata = [contract](GgufWriter& w) { w.add_string("nibble.contract", contract); }};
    EXPECT_EQ(refused(declared, {.backend = "cpu"}).found, contract);
  }
  EXPECT_EQ(refused({}, {.backend = "cpu", .contract = "native-fp4"}).found, "a weight without one");

  const auto loaded = load(write_tiny_model({}, "load.gguf"), {.contract = "native"});
  if (loaded.ok()) {
    EXPECT_EQ((*loaded)->contract, "native");
    EXPECT_EQ((*loaded)->model->backend->name(), "cuda");
  } else {
    EXPECT_NE(loaded.error().found.find("cpu has no kernels for activations in f16 with free sums"), std::string::npos);
    EXPECT_NE(loaded.error().hint.find("{contract=nc1}"), std::string::npos);
  }
}

TEST(Load, KeysOfTheFirstLaneDeclareItsArithmetic) {
  for (const bool input_scales : {false, true}) {
    const TinySpec spec{.muser_keys = true, .input_scales = input_scales};
    const auto loaded = load(write_tiny_model(spec, "load.gguf"), {.backend = "reference"});
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    EXPECT_EQ((*loaded)->contract, "nc1-f16");
    const auto asked_for = load((*loaded)->file().path(), {.backend = "reference", .contract = "w4a4"});
    EXPECT_EQ(asked_for.ok(), input_scales);
    const auto own = load((*loaded)->file().path(), {.contract = "nc1"});
    ASSERT_TRUE(own.ok());
    EXPECT_EQ((*own)->contract, "nc1");
  }
}

TEST(Load, TheFileDecidesLaneAndContract) {
  const TinySpec nvfp4, kquant{.d_model = 256, .d_ff = 512, .head_dim = 64, .lane = Lane::kKquant};
  TinySpec mixed = kquant;
  mixed.lane = Lane::kMixed;
  EXPECT_EQ(accepted(nvfp4)->lane(), "nvfp4");
  EXPECT_EQ(accepted(kquant)->lane(), "kquant");
  EXPECT_EQ(accepted(kquant)->contract, "nk1");
  EXPECT_EQ(accepted(mixed)->lane(), "mixed");
  EXPECT_EQ(accepted(mixed)->contract, "nk1");
  const auto same_bits = load(write_tiny_model(nvfp4, "load.gguf"), {.contract = "nk1", .lane = "nvfp4"});
  ASSERT_TRUE(same_bits.ok());
  EXPECT_EQ((*same_bits)->contract, "nk1");

  const Error other_lane = refused(kquant, {.lane = "nvfp4"});
  EXPECT_EQ(other_lane.found, "kquant: token_embd.weight is Q4_0");
  EXPECT_EQ(other_lane.expected, "nvfp4");
  EXPECT_EQ(refused(nvfp4, {.lane = "kquant"}).found, "nvfp4");
  EXPECT_FALSE(refused(mixed, {.lane = "kquant"}).hint.empty());
  const Error other_contract = refused(kquant, {.contract = "nc1"});
  EXPECT_EQ(other_contract.tensor, "token_embd.weight");
  EXPECT_EQ(other_contract.found, "Q4_0");
}

TEST(Load, UnknownBackendsAndIsasAreRefused) {
  EXPECT_FALSE(refused({}, {.backend = "tpu"}).message.empty());
  EXPECT_FALSE(refused({}, {.backend = "cpu", .machine = {.isa = "altivec"}}).message.empty());
}

TEST(Load, ABrokenChatTemplateNamesItsLine) {
  const Error error = refused({.chat_template = "ok\n{% for x in %}"});
  EXPECT_EQ(error.key, "tokenizer.chat_template");
  EXPECT_NE(error.to_string().find("2"), std::string::npos) << error.to_string();
}

TEST(Load, CheckModelFindsTheSameFaults) {
  EXPECT_TRUE(check_model(write_tiny_model({}, "check.gguf"), nullptr).ok());
  EXPECT_FALSE(check_model(write_tiny_model({.vocab_extra = 1}, "check.gguf"), nullptr).ok());
  EXPECT_FALSE(check_model(write_tiny_model({.extra_tensor = "blk.0.attn_q_norm.weight"}, "check.gguf"), nullptr).ok());
  const CheckReport one_missing =
      check_model(write_tiny_model({.skip_tensor = "output_norm.weight"}, "check.gguf"), nullptr);
  ASSERT_EQ(one_missing.faults.size(), 1u);
  EXPECT_EQ(one_missing.faults[0].tensor, "output_norm.weight");
  const CheckReport missing = check_model("/nonexistent.gguf", nullptr);
  ASSERT_EQ(missing.faults.size(), 1u);
  EXPECT_EQ(missing.faults[0].file, "/nonexistent.gguf");
}

TEST(Load, TellsHowManyBytesOfTheWeightsAreThere) {
  const std::string path = write_tiny_model({.own_head = true}, "progress.gguf");
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  const auto loaded = load(path, {.on_weights = [&](std::uint64_t n, std::uint64_t of) {
                             done.push_back(n);
                             total = of;
                           }});
  ASSERT_TRUE(loaded.ok());
  std::uint64_t bytes = 0;
  for (const TensorView& tensor : (*loaded)->file().tensors()) bytes += tensor.bytes.size();
  EXPECT_EQ(total, bytes);
  EXPECT_EQ(done.size(), 2U + 2U * 7U + 1U);  // embedding and head, seven matrices of each layer, the end
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_GT(done.front(), 0U);
  EXPECT_EQ(done.back(), bytes);
  EXPECT_GT(done[done.size() - 2], bytes * 9 / 10);  // what goes uncounted is little
}

TEST(Session, RefusesWhatDoesNotFitWithTheNumbers) {
  const auto loaded = accepted({});
  ASSERT_NE(loaded, nullptr);
  EXPECT_FALSE(Session::create(*loaded->model, {.n_ctx = 513}).ok());
  EXPECT_FALSE(Session::create(*loaded->model, {.n_ctx = -1}).ok());
  EXPECT_FALSE(Session::create(*loaded->model, {.n_ctx = 8, .prefill_chunk = 0}).ok());
  const auto session = Session::create(*loaded->model, {.n_ctx = 8});
  ASSERT_TRUE(session.ok());
  const auto too_long = (*session)->prefill(std::vector<std::int32_t>(9, 1));
  ASSERT_FALSE(too_long.ok());
  EXPECT_NE(too_long.error().found.find("9"), std::string::npos);
  EXPECT_NE(too_long.error().expected.find("8"), std::string::npos);
  EXPECT_FALSE((*session)->prefill({}).ok());
  EXPECT_FALSE((*session)->prefill(std::vector<std::int32_t>{260}).ok());
  EXPECT_FALSE((*session)->prefill(std::vector<std::int32_t>{-1}).ok());
  ASSERT_TRUE((*session)->prefill(std::vector<std::int32_t>(8, 1)).ok());
  EXPECT_FALSE((*session)->decode(1).ok());
}

TEST(Session, NonFiniteActivationsAreAnErrorOfTheRequest) {
  const auto loaded = accepted({.norm_weight = 1e38F});
  ASSERT_NE(loaded, nullptr);
  const auto session = Session::create(*loaded->model, {.n_ctx = 8});
  ASSERT_TRUE(session.ok());
  const auto status = (*session)->prefill(std::vector<std::int32_t>{1, 2, 3});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("not finite"), std::string::npos) << status.error().to_string();
}

TEST(Generate, EndsForTheReasonItSays) {
  const auto loaded = accepted({});
  ASSERT_NE(loaded, nullptr);
  const auto session = Session::create(*loaded->model, {.n_ctx = 12});
  ASSERT_TRUE(session.ok());
  GenerateRequest request{.prompt = {1, 2, 3}, .max_tokens = 4, .sampling = {}, .stops = {}, .ignore_eos = true};
  const auto run = [&](const TextCallback& on_text = {}) {
    return generate(**session, loaded->tokenizer, request, on_text);
  };
  const auto four = run();
  ASSERT_TRUE(four.ok());
  EXPECT_EQ(four->finish, FinishReason::kMaxTokens);
  EXPECT_EQ(four->tokens.size(), 4u);
  EXPECT_EQ(four->position_digests.size(), 4u);
  EXPECT_EQ(four->first_digest_position, 2);
  request.max_tokens = 100;
  const auto full = run();
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->finish, FinishReason::kContextFull);
  EXPECT_EQ(full->tokens.size(), 10u);  // 12 positions hold 3 + 9; one more is drawn from the last logits
  request.max_tokens = 0;
  EXPECT_TRUE(run()->tokens.empty());
  request.max_tokens = 4;
  request.sampling.logit_bias[257] = 1e6F;
  request.ignore_eos = false;
  EXPECT_EQ(run()->finish, FinishReason::kStopToken);
  request.sampling.logit_bias = {{'x', 1e6F}};
  request.stops = {"xx"};
  const auto stopped = run();
  EXPECT_EQ(stopped->finish, FinishReason::kStopString);
  EXPECT_EQ(stopped->text, "");
  request.stops = {};
  EXPECT_EQ(run([](std::string_view) { return false; })->finish, FinishReason::kCancelled);
}

}  // namespace
}  // namespace nibble::engine
