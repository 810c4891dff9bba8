// What AddressSanitizer has to be told: that the stack is another one now, and what of the heap is out of bounds.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NIBBLE_HAVE_ASAN 1
#endif
#endif

#ifdef NIBBLE_HAVE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace nibble::cuda_emulation {

struct Stack {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

// `left` keeps what the stack that is left needs when it is come back to; null if it never is.
inline void leave_for([[maybe_unused]] const Stack& next, [[maybe_unused]] void** left) {
#ifdef NIBBLE_HAVE_ASAN
  __sanitizer_start_switch_fiber(left, next.bottom, next.bytes);
#endif
}
// `from`: the stack that was left for this one.
inline void arrive([[maybe_unused]] void* left, [[maybe_unused]] Stack* from) {
#ifdef NIBBLE_HAVE_ASAN
  __sanitizer_finish_switch_fiber(left, from != nullptr ? &from->bottom : nullptr,
                                  from != nullptr ? &from->bytes : nullptr);
#endif
}
inline void forbid([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef NIBBLE_HAVE_ASAN
  __asan_poison_memory_region(memory, bytes);
#endif
}
inline void allow([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef NIBBLE_HAVE_ASAN
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

}  // namespace nibble::cuda_emulation
