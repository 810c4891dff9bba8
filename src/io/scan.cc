#include "io/scan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

namespace nibble {
namespace {

// A value is non-finite when all bits of the mask are set.
template <typename T, T kMask>
bool all_set(const std::byte* at) {
  T bits;
  std::memcpy(&bits, at, sizeof bits);
  return (bits & kMask) == kMask;
}

constexpr std::uint32_t kF32Mask = 0x7F800000;
constexpr std::uint16_t kF16Mask = 0x7C00;
constexpr std::uint16_t kBF16Mask = 0x7F80;
constexpr std::uint8_t kE4M3Mask = 0x7F;  // E4M3FN has no infinity: only the all-ones pattern is not a number
constexpr std::uint64_t kSlabBytes = std::uint64_t{64} << 20;  // after each, progress is told

using CountRange = NonFinite (*)(const std::byte* data, std::uint64_t begin, std::uint64_t end);

template <typename T, T kMask>
NonFinite count_dense(const std::byte* data, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t kStep = 1024;
  NonFinite found;
  for (std::uint64_t i = begin; i < end; i += kStep) {
    const std::uint64_t stop = std::min(end, i + kStep);
    unsigned count = 0;
    for (std::uint64_t j = i; j < stop; ++j) count += all_set<T, kMask>(data + j * sizeof(T)) ? 1 : 0;
    if (count != 0 && found.count == 0) {
      found.first = i;
      while (!all_set<T, kMask>(data + found.first * sizeof(T))) ++found.first;
    }
    found.count += count;
  }
  return found;
}

// Blocks of `kBytes` with f16 scales at kFirst and, if it differs, kSecond.
template <std::uint64_t kBytes, std::uint64_t kFirst, std::uint64_t kSecond = kFirst>
NonFinite count_blocks(const std::byte* data, std::uint64_t begin, std::uint64_t end) {
  NonFinite found;
  for (std::uint64_t i = begin; i < end; ++i) {
    const std::byte* block = data + i * kBytes;
    if (!all_set<std::uint16_t, kF16Mask>(block + kFirst) && !all_set<std::uint16_t, kF16Mask>(block + kSecond))
      continue;
    if (found.count++ == 0) found.first = i;
  }
  return found;
}

CountRange counter_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return count_dense<std::uint32_t, kF32Mask>;
    case DType::kF16:
      return count_dense<std::uint16_t, kF16Mask>;
    case DType::kBF16:
      return count_dense<std::uint16_t, kBF16Mask>;
    case DType::kF8_E4M3FN:
      return count_dense<std::uint8_t, kE4M3Mask>;
    case DType::kQ4_0:
      return count_blocks<18, 0>;
    case DType::kQ4_1:
      return count_blocks<20, 0, 2>;
    case DType::kQ5_0:
      return count_blocks<22, 0>;
    case DType::kQ5_1:
      return count_blocks<24, 0, 2>;
    case DType::kQ8_0:
      return count_blocks<34, 0>;
    case DType::kQ2_K:
      return count_blocks<84, 80, 82>;
    case DType::kQ3_K:
      return count_blocks<110, 108>;
    case DType::kQ4_K:
      return count_blocks<144, 0, 2>;
    case DType::kQ5_K:
      return count_blocks<176, 0, 2>;
    case DType::kQ6_K:
      return count_blocks<210, 208>;
    default:
      return nullptr;
  }
}

}  // namespace

NonFinite find_non_finite(const TensorView& tensor, ThreadPool* pool, const ScanProgress& progress) {
  const CountRange count_range = counter_of(tensor.dtype);
  if (count_range == nullptr) return {};
  const DTypeInfo& info = dtype_info(tensor.dtype);
  const std::uint64_t n = tensor.shape.size() / info.block_size;
  const std::byte* data = tensor.bytes.data();
  NonFinite total{.unit = info.block_size};
  const auto add = [](NonFinite& to, const NonFinite& share) {
    if (share.count == 0) return;
    to.first = to.count == 0 ? share.first : std::min(to.first, share.first);
    to.count += share.count;
  };
  const std::uint64_t slab = kSlabBytes / info.block_bytes;
  for (std::uint64_t first = 0; first < n; first += slab) {
    const std::uint64_t count = std::min(slab, n - first);
    if (pool == nullptr) {
      add(total, count_range(data, first, first + count));
    } else {
      std::vector<NonFinite> shares(static_cast<std::size_t>(pool->size()));
      pool->parallel_for(count, 4096, [&](std::size_t begin, std::size_t end, int thread) {
        add(shares[static_cast<std::size_t>(thread)], count_range(data, first + begin, first + end));
      });
      for (const NonFinite& share : shares) add(total, share);
    }
    if (progress) progress((first + count) * info.block_bytes);
  }
  return total;
}

}  // namespace nibble
