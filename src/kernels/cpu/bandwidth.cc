#include <algorithm>
#include <chrono>
#include <functional>

#include "base/check.h"
#include "base/page_arena.h"
#include "base/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/detect.h"

namespace nibble::kernels::cpu {

double measure_read_bandwidth(int n_threads) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr int kRepeats = 5;
  const auto table = select_isa(isa_names().front());
  NIBBLE_CHECK(table.ok(), "the first name of the list is usable");
  PageArena arena;  // as the weights
  const PageSpan memory = arena.allocate(kBytes);
  std::fill_n(memory.data.get(), kBytes, std::uint8_t{1});  // untouched pages are one page of zeros, in the cache
  ThreadPool pool(std::max(1, n_threads));
  double best = 0;
  std::uint64_t total = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto read = [&](std::size_t first, std::size_t last, int thread) {
      const std::uint64_t sum = (*table)->read_sum(memory.data.get() + first, last - first);
      if (thread == 0) total += sum;
    };
    pool.parallel_for(kBytes, 1 << 20, std::ref(read));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(kBytes) / elapsed.count() * 1e-9);
  }
  return total != 0 ? best : 0;  // keeps the reads from being dropped
}

}  // namespace nibble::kernels::cpu
