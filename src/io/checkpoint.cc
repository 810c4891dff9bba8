#include "io/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "io/scan.h"

namespace nibble {
namespace {

std::vector<Nvfp4View> check_load_time(const GgufFile& file, ThreadPool* pool, std::vector<Error>& faults) {
  const Nvfp4Rules rules = check_nvfp4_metadata(file, faults);
  std::vector<Nvfp4View> views;
  for (const TensorView& tensor : file.tensors()) {
    if (faults.size() >= kMaxFaults) break;
    if (tensor.dtype != DType::kNVFP4_E2M1) continue;
    if (std::optional<Nvfp4View> view = check_nvfp4_weight(file, tensor, rules, pool, faults)) views.push_back(*view);
  }
  std::sort(views.begin(), views.end(), [](const Nvfp4View& a, const Nvfp4View& b) { return a.name < b.name; });
  return views;
}

// The companions of NVFP4 weights are left out: the load-time checks have looked at them.
void check_finite(const GgufFile& file, const TensorView& tensor, ThreadPool* pool, const ScanProgress& progress,
                  std::vector<Error>& faults) {
  if (is_nvfp4_companion(tensor.name)) return;
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
  checkpoint.nvfp4_ = check_load_time(checkpoint.file_, pool, faults);
  if (!faults.empty()) return std::move(faults.front());
  NIBBLE_ASSIGN(checkpoint.contract_, contract_of(checkpoint.file_));
  return checkpoint;
}

Result<WeightView> Checkpoint::weight(std::string_view name) const {
  NIBBLE_ASSIGN(const TensorView tensor, file_.require_tensor(name));
  if (tensor.dtype != DType::kNVFP4_E2M1) return WeightView(tensor);
  const auto view = std::lower_bound(nvfp4_.begin(), nvfp4_.end(), name,
                                     [](const Nvfp4View& candidate, std::string_view n) { return candidate.name < n; });
  NIBBLE_CHECK(view != nvfp4_.end() && view->name == name, "an NVFP4 weight without a view in an open checkpoint");
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
