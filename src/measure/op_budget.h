// The wall clock of a run, shared over what is still to be measured.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace nibble::measure {

class OpBudget {
 public:
  using Clock = std::chrono::steady_clock;

  // No end where `seconds` is 0.
  OpBudget(double seconds, std::size_t n_cells) : seconds_(seconds), n_cells_(n_cells), cells_left_(n_cells) {}

  bool is_bounded() const { return seconds_ > 0; }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double left() const { return is_bounded() ? seconds_ - elapsed() : 1e9; }
  std::size_t n_cells() const { return n_cells_; }
  std::size_t n_done() const { return n_cells_ - cells_left_; }
  // What is left, for each of the next `n_cells`.
  double share(std::size_t n_cells = 1) const {
    return std::max(0.0, left()) * static_cast<double>(n_cells) /
           static_cast<double>(std::max<std::size_t>(cells_left_, 1));
  }
  void done(std::size_t n_cells = 1) { cells_left_ -= std::min(n_cells, cells_left_); }

 private:
  double seconds_;
  std::size_t n_cells_;
  std::size_t cells_left_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace nibble::measure
