// Outside text (names, keys, values) made fit for a message: control bytes and invalid UTF-8 escaped, length bounded.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nibble {

std::string printable(std::string_view text, std::size_t max_bytes = 160);

}  // namespace nibble
