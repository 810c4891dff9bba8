#include "engine/stop_strings.h"

#include <gtest/gtest.h>

namespace nibble::engine {
namespace {

TEST(StopStrings, FindsAStopHoweverTheTextIsCut) {
  const std::string text = "one two\n\nUser: three";
  for (std::size_t cut = 1; cut <= text.size(); ++cut) {
    StopStrings stops({"\n\nUser:", "never"});
    std::string shown;
    for (std::size_t i = 0; i < text.size(); i += cut) shown += stops.push(std::string_view(text).substr(i, cut));
    EXPECT_TRUE(stops.stopped());
    EXPECT_EQ(stops.matched(), "\n\nUser:");
    EXPECT_EQ(shown + stops.flush(), "one two") << cut;
  }
}

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeAStop) {
  StopStrings stops({"abc"});
  EXPECT_EQ(stops.push("xxab"), "xx");
  EXPECT_EQ(stops.push("d"), "abd");
  EXPECT_EQ(stops.push("aab"), "a");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.flush(), "ab");
}

TEST(StopStrings, TheEarliestOfSeveralWins) {
  StopStrings stops({"zzz", "b", ""});
  EXPECT_EQ(stops.push("abzzz"), "a");
  EXPECT_EQ(stops.matched(), "b");
  EXPECT_EQ(stops.push("more"), "");
}

}  // namespace
}  // namespace nibble::engine
