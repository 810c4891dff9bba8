#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace nibble {

void check_failed(const char* file, int line, const char* condition, const char* words) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", file, line, condition, words);
  std::abort();
}

}  // namespace nibble
