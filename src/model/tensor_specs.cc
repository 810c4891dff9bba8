#include "model/tensor_specs.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "io/fp8_weights.h"

namespace nibble::model {
namespace {

std::uint64_t extent(int n) {
  return static_cast<std::uint64_t>(n);
}

void add_layer(std::vector<TensorSpec>& specs, const Config& c, int index) {
  const std::string p = fmt::format("blk.{}.", index);
  const Architecture& family = *c.architecture;
  const Presence qk_norm = family.qk_norm ? Presence::kRequired : Presence::kNever;
  const Presence post_norms = family.post_norms ? Presence::kRequired : Presence::kNever;
  const std::uint64_t d_model = extent(c.d_model);
  const std::uint64_t d_ff = extent(c.d_ff);
  const std::uint64_t q_dim = extent(c.n_heads) * extent(c.head_dim);
  const std::uint64_t kv_dim = extent(c.n_kv_heads) * extent(c.head_dim);
  specs.push_back({p + "attn_norm.weight", {d_model}});
  specs.push_back({p + "attn_q.weight", {d_model, q_dim}});
  specs.push_back({p + "attn_k.weight", {d_model, kv_dim}});
  specs.push_back({p + "attn_v.weight", {d_model, kv_dim}});
  specs.push_back({p + "attn_q.bias", {q_dim}, family.qkv_bias});
  specs.push_back({p + "attn_k.bias", {kv_dim}, family.qkv_bias});
  specs.push_back({p + "attn_v.bias", {kv_dim}, family.qkv_bias});
  specs.push_back({p + "attn_q_norm.weight", {extent(c.head_dim)}, qk_norm});
  specs.push_back({p + "attn_k_norm.weight", {extent(c.head_dim)}, qk_norm});
  specs.push_back({p + "attn_output.weight", {q_dim, d_model}});
  specs.push_back({p + "attn_output.bias", {d_model}, family.output_bias});
  specs.push_back({p + "post_attention_norm.weight", {d_model}, post_norms});
  specs.push_back({p + "ffn_norm.weight", {d_model}});
  specs.push_back({p + "ffn_gate.weight", {d_model, d_ff}});
  specs.push_back({p + "ffn_up.weight", {d_model, d_ff}});
  specs.push_back({p + "ffn_down.weight", {d_ff, d_model}});
  specs.push_back({p + "post_ffw_norm.weight", {d_model}, post_norms});
}

}  // namespace

std::vector<TensorSpec> tensor_specs(const Config& c) {
  const std::uint64_t d_model = extent(c.d_model);
  const std::uint64_t vocab_size = extent(c.vocab_size);
  std::vector<TensorSpec> specs;
  specs.push_back({"token_embd.weight", {d_model, vocab_size}});
  for (int i = 0; i < c.n_layers; ++i) add_layer(specs, c, i);
  specs.push_back({"output_norm.weight", {d_model}});
  specs.push_back({"output.weight", {d_model, vocab_size}, Presence::kOptional});  // absent: the embedding is the head
  specs.push_back({"rope_freqs.weight", {extent(c.rope.rotary_dim / 2)}, Presence::kOptional});
  return specs;
}

std::vector<Error> check_tensors(const GgufFile& file, const Config& config) {
  const std::string_view family = config.architecture->name;
  std::vector<Error> faults;
  std::set<std::string, std::less<>> known;
  for (const TensorSpec& spec : tensor_specs(config)) {
    if (spec.presence == Presence::kNever) continue;
    known.insert(spec.name);
    const TensorView* view = file.find_tensor(spec.name);
    if (view == nullptr && spec.presence == Presence::kRequired) {
      faults.push_back({.message = fmt::format("{} is missing; every {} model of this size has it", spec.name, family),
                        .file = file.path(),
                        .tensor = spec.name,
                        .found = "no such tensor",
                        .expected = spec.shape.to_string()});
    } else if (view != nullptr && view->shape != spec.shape) {
      faults.push_back({.message = fmt::format("{} has the wrong shape for this model", spec.name),
                        .file = file.path_of(*view),
                        .tensor = spec.name,
                        .found = view->shape.to_string(),
                        .expected = spec.shape.to_string()});
    }
  }
  for (const TensorView& view : file.tensors()) {
    // Companions belong to a weight; the checkpoint refuses those without one.
    if (known.contains(view.name) || is_companion(view.name)) continue;
    faults.push_back({.message = fmt::format("tensor {} has no place in a {} model", view.name, family),
                      .file = file.path_of(view),
                      .tensor = std::string(view.name),
                      .found = fmt::format("{} {}", dtype_name(view.dtype), view.shape.to_string()),
                      .expected = "only tensors that nibble uses",
                      .hint = "the file holds a variant of the family that nibble does not implement"});
  }
  return faults;
}

}  // namespace nibble::model
