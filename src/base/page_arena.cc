#include "base/page_arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/out_of_memory.h"

namespace nibble {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kChunk = 16 * kHugePage;  // untouched pages cost nothing, so the last one may stay empty
constexpr std::size_t kLine = 64;

std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

std::shared_ptr<std::uint8_t> map_pages(std::size_t size) {
  const std::size_t room = size + kHugePage;  // mmap aligns to small pages only
  void* mapping = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw OutOfMemory(size);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  auto* start = static_cast<std::uint8_t*>(mapping) + (round_up(address, kHugePage) - address);
  ::madvise(start, size, MADV_HUGEPAGE);  // advice: where it is refused, pages stay small
  return {start, [mapping, room](std::uint8_t*) { ::munmap(mapping, room); }};
}

}  // namespace

PageSpan PageArena::allocate(std::size_t size) {
  if (size > SIZE_MAX / 2) throw OutOfMemory(size);
  if (chunk_ == nullptr || size > chunk_size_ - used_) {
    const std::size_t room = std::max(kChunk, round_up(size, kHugePage));
    chunk_ = map_pages(room);
    chunk_size_ = room;
    used_ = 0;
  }
  PageSpan span{{chunk_, chunk_.get() + used_}, size};
  used_ = std::min(chunk_size_, round_up(used_ + size, kLine));
  return span;
}

}  // namespace nibble
