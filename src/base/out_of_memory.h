// Memory that is not there is outside data, too: an Error with the arithmetic, not the end of the program. Allocations
// throw, as those of std do; functions of the interface turn that into an Error with this helper.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "base/result.h"

namespace nibble {

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::uint64_t bytes) : bytes_(bytes) {}
  const char* what() const noexcept override { return "out of memory"; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_;
};

// "not enough memory for WHAT", with the bytes that were needed (0: unknown) and those that this process may have.
Error not_enough_memory(const std::string& what, std::uint64_t needed_bytes, std::string hint = {});

// The result of f(), a Result or Status; an Error if an allocation failed inside it.
template <typename F>
auto or_out_of_memory(const std::string& what, F&& f) -> decltype(f()) {
  try {
    return std::forward<F>(f)();
  } catch (const OutOfMemory& error) {
    return not_enough_memory(what, error.bytes());
  } catch (const std::bad_alloc&) {
    return not_enough_memory(what, 0);
  }
}

}  // namespace nibble
