#include "base/hint.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace nibble {
namespace {

// A program that has a flag for the backend only.
std::optional<std::string> backend_only(std::string_view setting, std::string_view value) {
  if (setting != "backend") return std::nullopt;
  return "--backend " + std::string(value);
}

TEST(Hint, NamesWhatTheProgramHasAndLeavesOutTheRest) {
  const auto render = [](std::string_view hint) { return render_hint(hint, backend_only); };
  EXPECT_EQ(render("use {backend=cpu}"), "use --backend cpu");
  EXPECT_EQ(render("use {backend=cpu}; or {contract=nc1}, to be quick"), "use --backend cpu");
  EXPECT_EQ(render("pass a smaller {ctx}; or shorten the prompt; or use {backend=cpu}"),
            "shorten the prompt; or use --backend cpu");
  EXPECT_EQ(render("leave {lane} out"), "");
  EXPECT_EQ(render("braces of {others}, and { one alone"), "braces of {others}, and { one alone");
  EXPECT_EQ(render(""), "");
}

TEST(Hint, IsInWordsWhereNoProgramIsKnown) {
  EXPECT_EQ(plain_hint("use {backend=cpu}; or pass a smaller {ctx}"), "use backend cpu; or pass a smaller context");
  const Error error{.message = "m", .hint = "leave {lane} out"};
  EXPECT_EQ(error.to_string(), "m\n  hint:     leave lane out");
}

}  // namespace
}  // namespace nibble
