#include "fuzz/chat_template_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nibble::text::fuzz::check_template({reinterpret_cast<const char*>(data), size});
  return 0;
}
