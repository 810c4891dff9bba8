// The CPU backend of contract nc1. Work is split over threads by output rows, token rows or heads; never inside a sum.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kernels/backend.h"

namespace nibble::kernels {

struct CpuOptions {
  std::string isa = "auto";  // "auto": NIBBLE_ISA, otherwise the best of the machine
  int n_threads = 0;         // 0: one per hardware thread
  bool pins_threads = true;  // where each has a place of its own (places_of_threads in base/thread_pool.h)
};

// Runs the start-up canary and refuses if this machine or build would not compute what the contract says. The weights'
// source bytes must outlive what is made from them, and the x given to prepare_input must stay unchanged while the
// LinearInput is used (rows of F32 weights read it).
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

namespace cpu {
struct KernelTable;
// Of a table that the caller vouches for: without the canary.
std::unique_ptr<Backend> make_backend_of(const KernelTable& table, int n_threads, bool pins_threads = false);
}  // namespace cpu

}  // namespace nibble::kernels
