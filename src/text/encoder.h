// The step from text without special tokens to ids. One class for each kind of vocabulary: bpe.h, spm.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble::text {

class Encoder {
 public:
  virtual ~Encoder() = default;

  struct Fragment {
    std::string_view text;   // valid UTF-8, not empty; it begins the caller's text or follows a special token
    std::size_t offset = 0;  // of text[0] in the caller's text, for messages
    bool drop_unencodable = false;
  };
  // Appends the fragment's ids. Thread-safe.
  virtual Status encode(const Fragment& fragment, std::vector<std::int32_t>* ids) const = 0;
};

}  // namespace nibble::text
