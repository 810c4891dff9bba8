// UTF-8 by the Unicode standard, table 3-7: no surrogates, no overlong forms, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

struct Utf8Step {
  enum class Kind {
    kCharacter,  // a well-formed sequence
    kMalformed,  // bytes that no continuation can repair; U+FFFD stands for them ("maximal subpart", section 3.9)
    kTruncated,  // a proper prefix of a well-formed sequence, cut off by the end of the text
  };
  Kind kind;
  std::size_t length;  // 1 to 4 bytes
};

// What text[0...] begins with. `text` must not be empty.
Utf8Step next_utf8(std::string_view text);

// Offset of the first byte that is not part of a well-formed sequence; npos when the text is valid UTF-8.
std::size_t find_invalid_utf8(std::string_view text);

// An Error that names `what` ("the prompt"), the byte and its offset, where the text is not valid UTF-8.
Status check_utf8(std::string_view text, std::string_view what);

// The code point of one well-formed sequence.
char32_t decode_utf8(std::string_view sequence);
void append_utf8(char32_t code_point, std::string* text);

// U+FFFD, what stands for undecodable bytes.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace nibble
