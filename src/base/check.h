// Assertions of nibble's own invariants, on in every build. Bad outside data is never a CHECK but an Error.
#pragma once

namespace nibble {
// Prints "file:line: CHECK(condition) failed: words" and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* words);
}  // namespace nibble

#define NIBBLE_CHECK(condition, words)                               \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::nibble::check_failed(__FILE__, __LINE__, #condition, words); \
  } while (false)
