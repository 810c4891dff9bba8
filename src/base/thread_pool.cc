#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/machine.h"

namespace nibble {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kRangesOfShare = 16;  // at most: each costs the first misses of its streams
constexpr int kVictims = 16;                // others whose shares a thread looks into: each look is a miss

// Between ops of one token a thread waits microseconds, not milliseconds: it looks a while before it sleeps, and waking
// it again costs more than it waits. How often it looks follows from how that went: more each time that what it waited
// for came, half where it slept in vain, because on a machine whose cores are taken by others the one that is waited
// for may need this very core. It does not yield meanwhile: a yield hands the core away for whole time slices. With
// fewer cores than threads a spinner would steal the worker's core, so the pool then sleeps at once.
class Patience {
 public:
  explicit Patience(bool is_any) : looks_(is_any ? kLeast : 0), is_any_(is_any) {}

  // Looks until is_there() or patience is at its end.
  template <typename Predicate>
  void wait(Predicate is_there) {
    for (int i = 0; i < looks_; ++i) {
      if (!is_there()) continue;
      looks_ = std::min(looks_ + kLeast, kMost);
      return;
    }
    if (is_any_) looks_ = std::max(looks_ / 2, kLeast);
  }

 private:
  static constexpr int kLeast = 20'000;  // some 10 microseconds
  static constexpr int kMost = 1'000'000;
  int looks_;
  bool is_any_;
};

// The ranges of a thread's share that nobody has taken, in one word: which job, and the first and the end of them.
class alignas(kLine) Share {
 public:
  void give(std::uint32_t job, std::size_t n_ranges) {
    word_.store(std::uint64_t{job} << 32 | n_ranges, std::memory_order_release);
  }

  // A range of that job, or -1: its owner takes the first, others the last.
  int take(std::uint32_t job, bool is_owner) {
    std::uint64_t word = word_.load(std::memory_order_acquire);
    for (;;) {
      const auto first = static_cast<std::uint32_t>(word >> 16 & 0xFFFF),
                 end = static_cast<std::uint32_t>(word & 0xFFFF);
      if (word >> 32 != job || first == end) return -1;
      const std::uint64_t left = is_owner ? word + (1 << 16) : word - 1;
      if (word_.compare_exchange_weak(word, left, std::memory_order_acq_rel, std::memory_order_acquire)) {
        return static_cast<int>(is_owner ? first : end - 1);
      }
    }
  }

 private:
  std::atomic<std::uint64_t> word_{0};
};

}  // namespace

// How a job passes between threads, without a lock:
//
//   caller   writes what the job is, then how many ranges are unfinished, then the shares, and counts `job` up
//   thread   sees the count, reads what the job is, takes ranges, and takes off `unfinished` what it has done
//   caller   has done so too, and waits for `unfinished` to be 0
//
// A thread may come late, to a job that is over while the next is being written: what it reads is then worthless, and
// it gets no range, because a share's word holds the number of its job. Who does get a range has read the right things:
// the caller writes the next job only after that range is finished. (A thread kept from its core for just 2^32 jobs, an
// hour at least, between looking at a word and taking from it would be fooled.) A job needs no thread but the caller:
// one that sleeps through it costs its help and nothing else.
struct ThreadPool::Impl {
  alignas(kLine) std::atomic<std::uint32_t> job{0};  // 32 bits are what a system can sleep on
  std::atomic<std::size_t> count{0}, grain{1}, range{1};
  std::atomic<const Body*> body{nullptr};
  std::atomic<bool> stop{false};
  alignas(kLine) std::atomic<std::uint32_t> unfinished{0};

  std::vector<Share> shares;    // [n_threads]
  std::vector<CpuMask> places;  // [n_threads] or none
  std::vector<std::thread> threads;
  Patience patience{true};  // of the caller
  CpuMask caller_before;
  bool may_spin = true;

  explicit Impl(int n_threads) : shares(static_cast<std::size_t>(n_threads)) {}

  std::size_t n_threads() const { return shares.size(); }

  struct Bounds {
    std::size_t begin, end;
  };
  Bounds share_of(std::size_t thread, std::size_t n, std::size_t unit) const {
    const std::size_t units = (n + unit - 1) / unit;
    return {units * thread / n_threads() * unit, std::min(n, units * (thread + 1) / n_threads() * unit)};
  }

  // Takes part in a job until nothing of it is left to take.
  void work(std::uint32_t number, std::size_t thread) {
    const std::size_t n = count.load(std::memory_order_relaxed), unit = grain.load(std::memory_order_relaxed);
    const std::size_t size = range.load(std::memory_order_relaxed);
    const Body* const run = body.load(std::memory_order_relaxed);
    const std::size_t n_looked = std::min<std::size_t>(n_threads(), kVictims + 1);
    std::uint32_t n_done = 0;
    for (std::size_t i = 0; i < n_looked; ++i) {
      const std::size_t owner = (thread + i) % n_threads();
      for (int at; (at = shares[owner].take(number, i == 0)) >= 0; ++n_done) {
        const Bounds share = share_of(owner, n, unit);
        const std::size_t begin = share.begin + static_cast<std::size_t>(at) * size;
        (*run)(begin, std::min(share.end, begin + size), static_cast<int>(thread));
      }
    }
    if (n_done != 0 && unfinished.fetch_sub(n_done) == n_done) unfinished.notify_one();
  }

  void worker(std::size_t thread) {
    if (!places.empty()) stay_in(places[thread]);
    Patience own_patience(may_spin);
    for (std::uint32_t seen = 0;;) {
      own_patience.wait([&] { return job.load(std::memory_order_acquire) != seen; });
      job.wait(seen, std::memory_order_acquire);
      seen = job.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      work(seen, thread);
    }
  }
};

std::vector<CpuMask> places_of_threads(int n_threads, const std::vector<std::vector<int>>& cores) {
  const auto n = static_cast<std::size_t>(n_threads);
  std::vector<CpuMask> places;
  std::size_t n_cpus = 0, most = 0;
  for (const std::vector<int>& core : cores) {
    n_cpus += core.size();
    most = std::max(most, core.size());
  }
  if (n < 2) return {};
  if (n == cores.size()) {
    for (const std::vector<int>& core : cores) places.push_back(mask_of(core));
  } else if (n == n_cpus) {
    for (std::size_t i = 0; i < most; ++i) {  // neighbours, whose work is neighbouring rows, on different cores
      for (const std::vector<int>& core : cores) {
        if (i < core.size()) places.push_back(mask_of({&core[i], 1}));
      }
    }
  }
  return places;
}

ThreadPool::ThreadPool(int n_threads, std::vector<CpuMask> places) {
  NIBBLE_CHECK(n_threads >= 1, "a thread pool needs at least one thread");
  NIBBLE_CHECK(places.empty() || places.size() == static_cast<std::size_t>(n_threads), "each thread has a place");
  impl_ = std::make_unique<Impl>(n_threads);
  impl_->may_spin = n_threads <= hardware_threads();
  impl_->patience = Patience(impl_->may_spin);
  impl_->places = std::move(places);
  for (std::size_t i = 1; i < impl_->n_threads(); ++i) {
    impl_->threads.emplace_back([impl = impl_.get(), i] { impl->worker(i); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_relaxed);
  impl_->job.fetch_add(1);
  impl_->job.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

int ThreadPool::size() const {
  return static_cast<int>(impl_->n_threads());
}

bool ThreadPool::is_pinned() const {
  return !impl_->places.empty();
}

void ThreadPool::parallel_for(std::size_t count, std::size_t grain, std::size_t least, Body body) {
  if (count == 0) return;
  Impl& pool = *impl_;
  if (pool.n_threads() == 1 || count <= grain) {
    body(0, count, 0);
    return;
  }
  const std::size_t units = (count + grain - 1) / grain;
  const std::size_t most_of_share = (units + pool.n_threads() - 1) / pool.n_threads();  // in units
  const std::size_t of_range = (most_of_share + kRangesOfShare - 1) / kRangesOfShare;
  const std::size_t unit = std::max<std::size_t>(1, (least + grain - 1) / grain);
  const std::size_t range = (of_range + unit - 1) / unit * unit * grain;
  const std::uint32_t number = pool.job.load(std::memory_order_relaxed) + 1;
  pool.count.store(count, std::memory_order_relaxed);
  pool.grain.store(grain, std::memory_order_relaxed);
  pool.range.store(range, std::memory_order_relaxed);
  pool.body.store(&body, std::memory_order_relaxed);
  const auto ranges_of = [&](std::size_t thread) {
    const Impl::Bounds share = pool.share_of(thread, count, grain);
    return share.begin < share.end ? (share.end - share.begin + range - 1) / range : 0;
  };
  std::size_t n_ranges = 0;
  for (std::size_t i = 0; i < pool.n_threads(); ++i) n_ranges += ranges_of(i);
  pool.unfinished.store(static_cast<std::uint32_t>(n_ranges), std::memory_order_relaxed);
  for (std::size_t i = 0; i < pool.n_threads(); ++i) pool.shares[i].give(number, ranges_of(i));
  pool.job.fetch_add(1);
  pool.job.notify_all();
  pool.work(number, 0);
  pool.patience.wait([&] { return pool.unfinished.load(std::memory_order_acquire) == 0; });
  for (std::uint32_t left; (left = pool.unfinished.load(std::memory_order_acquire)) != 0;) {
    pool.unfinished.wait(left, std::memory_order_acquire);
  }
}

void ThreadPool::pin_caller() {
  if (!is_pinned() || impl_->caller_before.is_known) return;
  impl_->caller_before = mask_of_this_thread();
  stay_in(impl_->places[0]);
}

void ThreadPool::release_caller() {
  if (!is_pinned()) return;
  stay_in(impl_->caller_before);
  impl_->caller_before.is_known = false;
}

}  // namespace nibble
