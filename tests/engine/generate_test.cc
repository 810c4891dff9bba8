// What a completion records when its reader leaves.
#include "engine/generate.h"

#include <gtest/gtest.h>

#include "engine/loaded_model.h"
#include "tests/engine/tiny_model.h"

namespace nibble::engine {
namespace {

class CutAnswer : public ::testing::Test {
 protected:
  CutAnswer() : loaded_(load(nibble::testing::write_tiny_model({}, "generate.gguf"), {}).value()) {}

  Completion complete(const GenerateRequest& request, const TextCallback& on_text) {
    auto session = Session::create(*loaded_->model, {.n_ctx = 200}).value();
    return generate(*session, loaded_->tokenizer, request, on_text).value();
  }

  std::unique_ptr<LoadedModel> loaded_;
};

// Any letter may begin a stop string, so that something is held back at nearly every token.
TEST_F(CutAnswer, HasTheTextOfItsTokens) {
  int n_held = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    GenerateRequest request;
    request.prompt = {1, 2, 3};
    request.max_tokens = 40;
    request.ignore_eos = true;
    for (char first = ' '; first <= '~'; ++first) request.stops.push_back(std::string(1, first) + "\x01\x01\x01");
    request.sampling = {.temperature = 1.5F, .seed = seed};
    std::string seen;
    const Completion cut = complete(request, [&seen](std::string_view piece) {
      seen += piece;
      return false;
    });
    ASSERT_EQ(cut.finish, FinishReason::kCancelled);
    request.max_tokens = static_cast<int>(cut.tokens.size());
    const Completion again = complete(request, {});
    EXPECT_EQ(cut.tokens, again.tokens);
    EXPECT_EQ(cut.text, again.text) << "seed " << seed;
    n_held += cut.text != seen ? 1 : 0;
  }
  EXPECT_GT(n_held, 0);
}

TEST_F(CutAnswer, EndsBetweenTheStepsOfAPrompt) {
  auto session = Session::create(*loaded_->model, {.n_ctx = 200, .prefill_chunk = 4}).value();
  GenerateRequest request;
  request.prompt.assign(30, 7);
  int n_asked = 0;
  const Completion cut = generate(*session, loaded_->tokenizer, request, {}, [&] { return ++n_asked < 4; }).value();
  EXPECT_EQ(cut.finish, FinishReason::kCancelled);
  EXPECT_TRUE(cut.tokens.empty());
  EXPECT_EQ(session->tokens().size(), 12U);
  // What was computed is of use to the next prompt, whose answer is that of an empty cache.
  request.max_tokens = 5;
  const Completion next = generate(*session, loaded_->tokenizer, request).value();
  EXPECT_EQ(next.reused_positions, 12);
  EXPECT_EQ(next.logits_digest, complete(request, {}).logits_digest);
}

TEST_F(CutAnswer, EndsBetweenTokensThatHaveNoText) {
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  request.ignore_eos = true;
  int n_asked = 0;
  auto session = Session::create(*loaded_->model, {.n_ctx = 200}).value();
  const Completion cut = generate(*session, loaded_->tokenizer, request, {}, [&] { return ++n_asked < 3; }).value();
  EXPECT_EQ(cut.finish, FinishReason::kCancelled);
  EXPECT_EQ(cut.tokens.size(), 2U);
}

}  // namespace
}  // namespace nibble::engine
