#include "fuzz/gguf_fuzz.h"

#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nibble::fuzz::visit_gguf({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
