#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace nibble {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceAtMultiplesOfTheGrain) {
  for (int n_threads : {1, 2, 3, 7}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.size(), n_threads);
    for (std::size_t count : {0, 1, 5, 16, 17, 1000}) {
      for (std::size_t grain : {1, 4, 16}) {
        std::vector<std::atomic<int>> hits(count);
        pool.parallel_for(count, grain, [&](std::size_t begin, std::size_t end, int thread) {
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

TEST(ThreadPool, SurvivesManyShortRounds) {
  ThreadPool pool(3);
  std::atomic<long> total{0};
  for (int round = 0; round < 20000; ++round) {
    pool.parallel_for(3, 1, [&](std::size_t begin, std::size_t end, int) { total += static_cast<long>(end - begin); });
  }
  EXPECT_EQ(total.load(), 60000);
}

}  // namespace
}  // namespace nibble
