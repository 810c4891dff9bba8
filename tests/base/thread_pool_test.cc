#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/machine.h"

namespace nibble {
namespace {

using Cores = std::vector<std::vector<int>>;

TEST(ThreadPool, CoversEveryIndexOnceAtMultiplesOfTheGrain) {
  for (int n_threads : {1, 2, 3, 7, 40}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.size(), n_threads);
    for (std::size_t count : {0, 1, 5, 16, 17, 1000}) {
      for (std::size_t grain : {1, 4, 16}) {
        for (std::size_t least : {1, 6, 100}) {
          std::vector<std::atomic<int>> hits(count);
          pool.parallel_for(count, grain, least, [&](std::size_t begin, std::size_t end, int thread) {
            EXPECT_EQ(begin % grain, 0u);
            EXPECT_TRUE(end % grain == 0 || end == count);
            EXPECT_LT(thread, n_threads);
            for (std::size_t i = begin; i < end; ++i) ++hits[i];
          });
          for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(hits[i].load(), 1) << i;
        }
      }
    }
  }
}

// Threads often come late to these: to jobs that are over, and to shares of the next one.
TEST(ThreadPool, SurvivesManyShortRounds) {
  ThreadPool pool(3);
  for (std::size_t round = 0; round < 20000; ++round) {
    const std::size_t count = 2 + round % 50;
    std::vector<char> hits(count);  // no atomics: whoever runs an index has it alone, and the caller sees it done
    pool.parallel_for(count, 1, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; ++i) ++hits[i];
    });
    ASSERT_EQ(hits, std::vector<char>(count, 1)) << round;
  }
}

// As where the system takes a thread's core away in the middle of its share. With shares that nobody else takes from,
// the first of these threads would wait for itself.
TEST(ThreadPool, AThreadThatIsHeldUpHoldsUpOnlyWhatItHasBegun) {
  constexpr std::size_t kCount = 64;
  ThreadPool pool(2);
  std::atomic<std::size_t> n_done{0};
  std::atomic<bool> is_held{false}, has_waited_in_vain{false};
  pool.parallel_for(kCount, 1, [&](std::size_t begin, std::size_t end, int) {
    const std::size_t n = end - begin;
    if (!is_held.exchange(true)) {
      const auto start = std::chrono::steady_clock::now();
      while (n_done != kCount - n && !has_waited_in_vain) {
        has_waited_in_vain = std::chrono::steady_clock::now() - start > std::chrono::seconds(20);
        std::this_thread::yield();
      }
    }
    n_done += n;
  });
  EXPECT_EQ(n_done, kCount);
  EXPECT_FALSE(has_waited_in_vain);
}

std::vector<CpuMask> masks(const Cores& places) {
  std::vector<CpuMask> masks;
  for (const std::vector<int>& cpus : places) masks.push_back(mask_of(cpus));
  return masks;
}

TEST(Places, AreThereWhereThereIsNothingToChoose) {
  const Cores plain = {{0}, {3}}, siblings = {{0, 2}, {1, 3}}, mixed = {{0, 1}, {2}};
  EXPECT_TRUE(places_of_threads(1, plain).empty());
  EXPECT_TRUE(places_of_threads(2, plain) == masks(plain));
  EXPECT_TRUE(places_of_threads(3, plain).empty());  // two would share a CPU
  EXPECT_TRUE(places_of_threads(2, siblings) == masks(siblings));
  EXPECT_TRUE(places_of_threads(3, siblings).empty());
  EXPECT_TRUE(places_of_threads(4, siblings) == masks({{0}, {1}, {2}, {3}}));
  EXPECT_TRUE(places_of_threads(3, mixed) == masks({{0}, {2}, {1}}));
  EXPECT_TRUE(places_of_threads(2, {}).empty());  // a system that does not tell
}

TEST(Places, AreKeptByThreadsAndGivenBackByTheCaller) {
  const int n_threads = hardware_threads();
  const std::vector<CpuMask> places = places_of_threads(n_threads);
  if (places.empty()) GTEST_SKIP() << "no places for " << n_threads << " threads here";
  ThreadPool pool(n_threads, places);
  EXPECT_TRUE(pool.is_pinned());
  const CpuMask before = mask_of_this_thread();
  std::vector<CpuMask> found(places.size());
  const auto look = [&](std::size_t begin, std::size_t end, int thread) {
    for (std::size_t i = begin; i < end; ++i) found[static_cast<std::size_t>(thread)] = mask_of_this_thread();
  };
  for (int round = 0; round < 2; ++round) {
    pool.pin_caller();
    pool.pin_caller();
    for (int i = 0; i < 1000; ++i) pool.parallel_for(1000, 1, look);
    EXPECT_TRUE(mask_of_this_thread() == places[0]);
    pool.release_caller();
    EXPECT_TRUE(mask_of_this_thread() == before);
  }
  for (std::size_t i = 0; i < places.size(); ++i) EXPECT_TRUE(!found[i].is_known || found[i] == places[i]) << i;
  EXPECT_TRUE(found[0].is_known);
}

}  // namespace
}  // namespace nibble
