#include "measure/file_contents.h"

#include <algorithm>
#include <charconv>

#include "io/fp8_weights.h"
#include "io/nvfp4_container.h"

namespace nibble::measure {
namespace {

// The weight that a companion belongs to; other names as they are.
std::string_view owner_of(std::string_view name) {
  for (const std::string_view suffix : {kTensorScaleSuffix, kScaleSuffix, kInputScaleSuffix, kFp8ScaleSuffix}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

TensorGroup& group_for(std::vector<TensorGroup>& groups, const std::string& kind, DType dtype) {
  const auto found =
      std::ranges::find_if(groups, [&](const TensorGroup& g) { return g.kind == kind && g.dtype == dtype; });
  return found != groups.end() ? *found : groups.emplace_back(TensorGroup{.kind = kind, .dtype = dtype});
}

}  // namespace

TensorPlace place_of(std::string_view tensor_name) {
  TensorPlace place;
  if (tensor_name.ends_with(".weight")) tensor_name.remove_suffix(7);
  if (tensor_name.starts_with("blk.")) {
    const auto end = std::from_chars(tensor_name.data() + 4, tensor_name.data() + tensor_name.size(), place.layer);
    if (end.ec == std::errc() && end.ptr != tensor_name.data() + tensor_name.size()) {
      tensor_name.remove_prefix(static_cast<std::size_t>(end.ptr - tensor_name.data()) + 1);
    }
  }
  place.kind = tensor_name;
  return place;
}

std::vector<TensorGroup> tensor_groups(const GgufFile& file) {
  std::vector<TensorGroup> groups;
  for (const TensorView& tensor : file.tensors()) {
    const TensorView* owner = file.find_tensor(owner_of(tensor.name));
    TensorGroup& group =
        group_for(groups, place_of(owner_of(tensor.name)).kind, owner != nullptr ? owner->dtype : tensor.dtype);
    group.bytes += tensor.bytes.size();
    if (is_companion(tensor.name)) continue;
    ++group.n_tensors;
    group.n_weights += tensor.shape.size();
  }
  return groups;
}

}  // namespace nibble::measure
