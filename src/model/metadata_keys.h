// Keys of a model family's own namespace that nibble does not read: without effect, neutral, or refused, because such a
// key may ask for arithmetic that nibble does not have.
#pragma once

#include <set>
#include <string>

#include "base/result.h"
#include "io/gguf.h"
#include "model/architecture.h"

namespace nibble::model {

// `read`: full names of the keys that were looked up. Refuses the first other key of the namespace that may change an
// answer. There is no way round it but another file, which then has a digest of its own in every receipt.
Status check_metadata_keys(const GgufFile& file, const Architecture& family,
                           const std::set<std::string, std::less<>>& read);

}  // namespace nibble::model
