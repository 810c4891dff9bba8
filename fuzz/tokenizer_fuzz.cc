#include "fuzz/tokenizer_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nibble::text::fuzz::check_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
