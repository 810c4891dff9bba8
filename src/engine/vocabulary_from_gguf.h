// The tokenizer keys of a GGUF file as the text layer's Vocabulary.
#pragma once

#include "base/result.h"
#include "io/gguf.h"
#include "text/vocabulary.h"

namespace nibble::engine {

Result<text::Vocabulary> vocabulary_from_gguf(const GgufFile& file);

}  // namespace nibble::engine
