#include <algorithm>
#include <cmath>
#include <limits>

#include "quantize/quantize_model.h"

namespace nibble {
namespace {

template <typename T>
bool worse(const T& a, const T& b) {
  return a.error.relative_rms() > b.error.relative_rms();
}

}  // namespace

double WeightError::relative_rms() const {
  return signal == 0 ? 0 : std::sqrt(noise / signal);
}

double WeightError::snr_db() const {
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

std::vector<KindSummary> QuantizeSummary::by_kind() const {
  std::vector<KindSummary> kinds;
  for (const TensorSummary& tensor : tensors) {
    if (!tensor.is_matrix && tensor.error.noise == 0) continue;
    const std::string kind = tensor_kind(tensor.name);
    auto at = std::find_if(kinds.begin(), kinds.end(),
                           [&](const KindSummary& known) { return known.kind == kind && known.to == tensor.to; });
    if (at == kinds.end()) at = kinds.insert(kinds.end(), KindSummary{.kind = kind, .to = tensor.to, .error = {}});
    ++at->n_tensors;
    at->n_weights += tensor.n_weights;
    at->error.signal += tensor.error.signal;
    at->error.noise += tensor.error.noise;
  }
  std::stable_sort(kinds.begin(), kinds.end(), worse<KindSummary>);
  return kinds;
}

std::vector<TensorSummary> QuantizeSummary::worst(std::size_t n) const {
  std::vector<TensorSummary> out;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(out),
               [](const TensorSummary& tensor) { return tensor.to == DType::kNVFP4_E2M1; });
  std::stable_sort(out.begin(), out.end(), worse<TensorSummary>);
  if (out.size() > n) out.resize(n);
  return out;
}

}  // namespace nibble
