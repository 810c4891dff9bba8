// How attention asks for what it will read: keys, scales and values of a head lie in the order in which they are read
// (kv_split.h), and splits follow one another for a while.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// What will be read is asked for little by little, because a core drops requests beyond those that it can have in
// flight: some lines in each step of sums, and kSoftmaxLines before the weights of each head. A split ahead (24 KB and
// more) is slower, and nearer than 8 KB as well.
constexpr std::size_t kFetchAhead = 12 << 10;
constexpr int kSoftmaxLines = 24;
struct Fetch {
  const std::uint8_t* at;
  const std::uint8_t* end;  // of the split at hand,
  std::ptrdiff_t jump;      // and from there to the next one: 0 if that follows
  int lines;                // a step, at most 7; 0: there is no next one

  // Asked for often enough that little is fetched beyond the end.
  [[gnu::always_inline]] void cross() {
    if (at < end) return;
    at += jump;
    jump = 0;
  }
};
template <int n>
[[gnu::always_inline]] inline void fetch_lines(Fetch& fetch) {
#pragma GCC unroll 32
  for (int i = 0; i < n; ++i) __builtin_prefetch(fetch.at + i * kLineBytes, 0, 3);
  fetch.at += n * kLineBytes;
}
// No loop over lines: around one, gcc spills the sums of the loop that it stands in. always_inline: it drops calls of a
// function that only prefetches.
[[gnu::always_inline]] inline void fetch_step(Fetch& fetch) {
  if ((fetch.lines & 4) != 0) fetch_lines<4>(fetch);
  if ((fetch.lines & 2) != 0) fetch_lines<2>(fetch);
  if ((fetch.lines & 1) != 0) fetch_lines<1>(fetch);
}

}  // namespace
}  // namespace nibble::kernels::cpu
