#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace nibble {
namespace {

TEST(Printable, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(printable("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
  EXPECT_EQ(printable("caf\xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\x98\x80"), "caf\xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\x98\x80");
  EXPECT_EQ(printable("\x1b[31m\n"), "\\x1b[31m\\x0a");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xC2\x85"), "\\xc2\\x85");           // a C1 control
  EXPECT_EQ(printable("\xFF\xC3"), "\\xff\\xc3");           // no lead byte; a sequence cut short
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, BoundsItsLength) {
  EXPECT_EQ(printable(std::string(1000, 'x'), 10), "xxxxxxxxxx...");
  EXPECT_EQ(printable("xxxxxxxxxx", 10), "xxxxxxxxxx");
}

TEST(ErrorText, EscapesWhatAFileOrAClientSays) {
  const Error error{.message = "bad\x1b[31m", .file = "a\nb", .found = "\x07", .hint = std::string(1000, 'h')};
  EXPECT_EQ(error.to_string(),
            "bad\\x1b[31m\n  file:     a\\x0ab\n  found:    \\x07\n  hint:     " + std::string(1000, 'h'));
}

}  // namespace
}  // namespace nibble
