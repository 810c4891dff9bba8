// A float backend that carries the contract's arithmetic along and measures, per layer and head, what it would change
// on the same inputs: so that an outlier is seen where it is and not in the logits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace nibble::kernels {

// Sums of squares of a signal and of its error.
struct ErrorSum {
  double signal = 0;
  double noise = 0;
  void add(double exact, double found) {
    signal += exact * exact;
    noise += (found - exact) * (found - exact);
  }
  double relative_rms() const;  // 0 without a signal
};

enum class ProbeKind { kQuery, kKey, kValue, kAttention, kInput };

// kInput: `index` is the site within the layer (0: q, k, v; 1: attn_output; 2: gate, up; 3: down), else the head.
struct ProbeFigure {
  ProbeKind kind;
  int layer = 0;
  int index = 0;
  ErrorSum error;
};

class ProbeBackend : public Backend {
 public:
  virtual std::vector<ProbeFigure> figures() const = 0;
};

// Its weights may be those of another reference backend (reference_backend.h).
std::unique_ptr<ProbeBackend> make_probe_backend(int n_threads);

}  // namespace nibble::kernels
