#include "io/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "io/scan.h"

namespace nibble {
namespace {

struct QuantizedViews {
  std::vector<Nvfp4View> nvfp4;
  std::vector<Fp8View> fp8;
};

// Sorted by name.
template <class View>
const View* find_view(const std::vector<View>& views, std::string_view name) {
  const auto found = std::ranges::lower_bound(views, name, {}, &View::name);
  return found != views.end() && found->name == name ? &*found : nullptr;
}

QuantizedViews check_load_time(const GgufFile& file, ThreadPool* pool, std::vector<Error>& faults) {
  const Nvfp4Rules rules = check_nvfp4_metadata(file, faults);
  check_fp8_orphans(file, faults);
  QuantizedViews views;
  for (const TensorView& tensor : file.tensors()) {
    if (faults.size() >= kMaxFaults) break;
    if (tensor.dtype == DType::kNVFP4_E2M1) {
      if (const auto view = check_nvfp4_weight(file, tensor, rules, pool, faults)) views.nvfp4.push_back(*view);
    } else if (is_fp8_weight(tensor)) {
      if (const auto view = check_fp8_weight(file, tensor, pool, faults)) views.fp8.push_back(*view);
    }
  }
  std::ranges::sort(views.nvfp4, {}, &Nvfp4View::name);
  std::ranges::sort(views.fp8, {}, &Fp8View::name);
  return views;
}

// FP8 weights and companions are left out: the load-time checks have looked at them.
void check_finite(const GgufFile& file, const TensorView& tensor, ThreadPool* pool, const ScanProgress& progress,
                  std::vector<Error>& faults) {
  if (is_companion(tensor.name) || is_fp8_weight(tensor)) return;
  const NonFinite found = find_non_finite(tensor, pool, progress);
  if (found.count == 0) return;
  const std::uint64_t index = found.first * found.unit;
  faults.push_back(Error{.message = fmt::format("{} has values that are NaN or infinite", printable(tensor.name)),
                         .file = file.path_of(tensor),
                         .tensor = printable(tensor.name),
                         .found = fmt::format("{} {}, the first at row {}, column {}", found.count,
                                              found.unit == 1 ? "non-finite values" : "blocks with a non-finite scale",
                                              index / tensor.cols(), index % tensor.cols()),
                         .expected = "finite values",
                         .hint = "the source model or its conversion is damaged"});
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path, ThreadPool* pool) {
  NIBBLE_ASSIGN(GgufFile file, GgufFile::open(path));
  return from_gguf(std::move(file), pool);
}

Result<Checkpoint> Checkpoint::from_gguf(GgufFile file, ThreadPool* pool) {
  Checkpoint checkpoint(std::move(file));
  std::vector<Error> faults;
  QuantizedViews views = check_load_time(checkpoint.file_, pool, faults);
  if (!faults.empty()) return std::move(faults.front());
  checkpoint.nvfp4_ = std::move(views.nvfp4);
  checkpoint.fp8_ = std::move(views.fp8);
  NIBBLE_ASSIGN(checkpoint.contract_, contract_of(checkpoint.file_));
  return checkpoint;
}

Result<WeightView> Checkpoint::weight(std::string_view name) const {
  NIBBLE_ASSIGN(const TensorView tensor, file_.require_tensor(name));
  if (is_fp8_weight(tensor)) {
    const Fp8View* view = find_view(fp8_, name);
    NIBBLE_CHECK(view != nullptr, "an FP8 weight without a view in an open checkpoint");
    return WeightView(*view);
  }
  if (tensor.dtype != DType::kNVFP4_E2M1) return WeightView(tensor);
  const Nvfp4View* view = find_view(nvfp4_, name);
  NIBBLE_CHECK(view != nullptr, "an NVFP4 weight without a view in an open checkpoint");
  return WeightView(*view);
}

CheckReport verify_checkpoint(const GgufFile& file, ThreadPool* pool,
                              const std::function<void(std::uint64_t)>& progress) {
  CheckReport report;
  check_load_time(file, pool, report.faults);
  report.lane = lane_of(file);
  if (const Result<Contract> contract = contract_of(file); contract.ok()) report.contract = *contract;
  for (const TensorView& tensor : file.tensors()) {
    if (report.faults.size() >= kMaxFaults) {
      report.faults.push_back(Error{.message = "there are more faults than these", .file = file.path()});
      break;
    }
    const auto inside = [&](std::uint64_t bytes) {
      if (progress) progress(report.n_bytes + bytes);
    };
    check_finite(file, tensor, pool, inside, report.faults);
    ++report.n_tensors;
    report.n_bytes += tensor.bytes.size();
    if (progress) progress(report.n_bytes);
  }
  return report;
}

}  // namespace nibble
