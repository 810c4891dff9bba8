#include "kernels/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>

#include "base/page_arena.h"
#include "base/thread_pool.h"
#include "kernels/cpu/detect.h"

namespace nibble::kernels {
namespace {

constexpr int kPasses = 5;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::vector<std::string_view> cpu_isa_names() {
  return cpu::isa_names();
}

Result<std::string_view> cpu_auto_isa() {
  NIBBLE_ASSIGN(const cpu::KernelTable* const table, cpu::select_isa("auto"));
  return std::string_view(table->isa);
}

double read_bandwidth(int n_threads, std::size_t n_bytes) {
  constexpr std::size_t kPiece = 1 << 16;
  constexpr std::size_t kBytesOfPass = std::size_t{32} << 20;  // a small buffer is read often enough for the clock
  const auto table = cpu::select_isa(cpu::isa_names().front());
  NIBBLE_CHECK(table.ok(), "the first name of the list is usable");
  n_bytes = std::max(n_bytes, kPiece);
  PageArena arena;  // as the weights
  const PageSpan memory = arena.allocate(n_bytes);
  std::fill_n(memory.data.get(), n_bytes, std::uint8_t{1});  // untouched pages are one page of zeros, in the cache
  ThreadPool pool(std::max(1, n_threads), places_of_threads(n_threads));
  pool.pin_caller();
  std::atomic<std::uint64_t> total = 0;  // keeps the reads from being dropped
  const auto read = [&](std::size_t first, std::size_t last, int) {
    total += (*table)->read_sum(memory.data.get() + first, last - first);
  };
  const std::size_t repeats = std::max<std::size_t>(1, kBytesOfPass / n_bytes);
  double best = 0;
  for (int i = 0; i < kPasses; ++i) {
    const double seconds = seconds_of([&] {
      for (std::size_t r = 0; r < repeats; ++r) pool.parallel_for(n_bytes, kPiece, read);
    });
    best = std::max(best, static_cast<double>(repeats * n_bytes) / seconds * 1e-9);
  }
  pool.release_caller();
  return total != 0 ? best : 0;
}

Result<double> integer_peak(std::string_view isa, int n_threads) {
  constexpr std::uint64_t kProbeOps = 20'000'000;
  constexpr double kSecondsOfPass = 0.02;
  NIBBLE_ASSIGN(const cpu::KernelTable* const table, cpu::select_isa(isa));
  table->dot_peak(kProbeOps);  // the clock of the core rises
  const double probe = seconds_of([&] { table->dot_peak(kProbeOps); });
  const std::uint64_t ops = static_cast<std::uint64_t>(kProbeOps * std::max(1.0, kSecondsOfPass / probe));
  ThreadPool pool(std::max(1, n_threads), places_of_threads(n_threads));
  pool.pin_caller();
  const std::size_t n = static_cast<std::size_t>(pool.size());
  double best = 0;
  for (int i = 0; i < kPasses; ++i) {
    std::atomic<std::uint64_t> done = 0;
    const double seconds = seconds_of([&] {
      pool.parallel_for(n, 1, [&](std::size_t first, std::size_t last, int) {
        for (; first < last; ++first) done += table->dot_peak(ops);
      });
    });
    best = std::max(best, static_cast<double>(done) / seconds * 1e-9);
  }
  pool.release_caller();
  return best;
}

}  // namespace nibble::kernels
