#include "kernels/seam_canary.h"

#include <array>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/half.h"
#include "kernels/canary_values.h"

namespace nibble::kernels {
namespace {

constexpr int kHeads = 2, kKvHeads = 1, kHeadDim = 80;
constexpr int kDim = kHeads * kHeadDim, kKvDim = kKvHeads * kHeadDim, kVocab = 24;
constexpr int kPrompt = 130, kDecoded = 3;  // the second and third single token may be replays of the first
constexpr int kWindow = 100;                // starts inside of a split
constexpr float kEps = 1e-5F;
constexpr float kInputScaleInv = 12.5F;  // of w4a4

// Beyond a super-block where activations have any.
int ff_of(ActivationFormat format) {
  return format == ActivationFormat::kA11 ? 208 : 304;
}

// Weights of every type, with the bytes that they refer to.
class CanaryWeights {
 public:
  explicit CanaryWeights(CanaryValues& values) : values_(values) {}

  Nvfp4View nvfp4(int n_out, int n_in) {
    const auto codes = bytes(static_cast<std::size_t>(n_out) * n_in / 2);
    const auto scales = bytes(static_cast<std::size_t>(n_out) * n_in / 16);
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(values_.bits() >> 24);
    for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(40 + (values_.bits() >> 27));
    return {"canary",      static_cast<std::uint64_t>(n_out), static_cast<std::uint64_t>(n_in), codes, scales, 0.02F,
            kInputScaleInv};
  }
  TensorView rows(DType dtype, int n_out, int n_in) {
    const auto n = static_cast<std::size_t>(n_out) * n_in;
    const auto out = bytes(bytes_of(dtype, n));
    for (std::size_t i = 0; i < n; ++i) put(dtype, values_.next(), i, out);
    return {"canary", dtype, {static_cast<std::uint64_t>(n_in), static_cast<std::uint64_t>(n_out)}, std::as_bytes(out)};
  }

 private:
  std::span<std::uint8_t> bytes(std::size_t n) { return storage_.emplace_back(n); }

  static void put(DType dtype, float value, std::size_t i, std::span<std::uint8_t> out) {
    const auto store = [&](std::size_t at, std::uint32_t word, int n_bytes) {
      for (int b = 0; b < n_bytes; ++b) out[at + b] = static_cast<std::uint8_t>(word >> (8 * b));
    };
    if (dtype == DType::kF32) return store(4 * i, format::float_bits(value), 4);
    if (dtype == DType::kF16) return store(2 * i, format::f32_to_f16(value), 2);
    if (dtype == DType::kBF16) return store(2 * i, format::f32_to_bf16(value), 2);
    const std::size_t block = i / 32 * 34;  // Q8_0
    if (i % 32 == 0) store(block, format::f32_to_f16(value * 0x1p-7F), 2);
    out[block + 2 + i % 32] = static_cast<std::uint8_t>(format::float_bits(value) >> 8);
  }

  CanaryValues& values_;
  std::vector<std::vector<std::uint8_t>> storage_;
};

// One layer, its head and its scratch.
struct Canary {
  int n_ff = 0;
  std::unique_ptr<Embedding> embedding;
  std::unique_ptr<Linear> q, k, v, o, gate, up, down, head;
  std::unique_ptr<Buffer> norm, bias;
  std::unique_ptr<RopeTable> rope;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Buffer> residual, normed, queries, keys, values, attended, projected, gated, raised, logits;
  std::unique_ptr<LinearInput> from_model, from_attention, from_ff;
};

Status make_weights(Backend& backend, CanaryWeights& weights, Canary& c) {
  const TensorView table = weights.rows(DType::kF16, kVocab, kDim);
  NIBBLE_ASSIGN(c.embedding, backend.make_embedding(table));
  NIBBLE_ASSIGN(c.head, backend.make_linear(table));
  NIBBLE_ASSIGN(c.q, backend.make_linear(weights.nvfp4(kDim, kDim)));
  NIBBLE_ASSIGN(c.k, backend.make_linear(weights.rows(DType::kQ8_0, kKvDim, kDim)));
  NIBBLE_ASSIGN(c.v, backend.make_linear(weights.rows(DType::kF32, kKvDim, kDim)));
  NIBBLE_ASSIGN(c.o, backend.make_linear(weights.nvfp4(kDim, kDim)));
  NIBBLE_ASSIGN(c.gate, backend.make_linear(weights.nvfp4(c.n_ff, kDim)));
  NIBBLE_ASSIGN(c.up, backend.make_linear(weights.rows(DType::kBF16, c.n_ff, kDim)));
  NIBBLE_ASSIGN(c.down, backend.make_linear(weights.nvfp4(kDim, c.n_ff)));
  return ok_status();
}

void make_scratch(Backend& backend, CanaryValues& values, Canary& c) {
  const auto rows = [&](int width) { return backend.make_buffer(static_cast<std::size_t>(kPrompt) * width); };
  c.norm = backend.make_vector(values.floats(kDim));
  c.bias = backend.make_vector(values.floats(kDim));
  c.rope =
      backend.make_rope_table(values.floats(static_cast<std::size_t>(kPrompt + kDecoded) * kHeadDim), kHeadDim, false);
  c.cache = backend.make_kv_cache({1, kKvHeads, kHeadDim, kPrompt + kDecoded});
  c.residual = rows(kDim);
  c.normed = rows(kDim);
  c.queries = rows(kDim);
  c.keys = rows(kKvDim);
  c.values = rows(kKvDim);
  c.attended = rows(kDim);
  c.projected = rows(kDim);
  c.gated = rows(c.n_ff);
  c.raised = rows(c.n_ff);
  c.logits = backend.make_buffer(kVocab);
  c.from_model = backend.make_linear_input(kPrompt, kDim);
  c.from_attention = backend.make_linear_input(kPrompt, kDim);
  c.from_ff = backend.make_linear_input(kPrompt, c.n_ff);
}

void forward(Backend& b, Canary& c, bool all_abilities, int first, int n_rows) {
  std::vector<std::int32_t> tokens;
  std::vector<TokenRow> rows;
  for (int i = 0; i < n_rows; ++i) {
    tokens.push_back((7 * (first + i)) % kVocab);
    rows.push_back({c.cache.get(), first + i});
  }
  const std::int32_t last[] = {n_rows - 1};
  const AttentionShape shape{kHeads, kKvHeads, kHeadDim, 0.11F, all_abilities ? kWindow : 0};
  b.begin_step(n_rows);
  b.embed(*c.embedding, tokens, c.residual->data());
  if (all_abilities) b.scale(c.residual->data(), 3.3F, static_cast<std::size_t>(n_rows) * kDim);
  b.add_norm_input(c.residual->data(), nullptr, c.norm->data(), n_rows, kDim, kEps, c.normed->data(), *c.from_model);
  const LinearCall qkv[] = {{c.q.get(), c.bias->data(), c.queries->data()},
                            {c.k.get(), nullptr, c.keys->data()},
                            {c.v.get(), c.bias->data(), c.values->data()}};
  b.linears(*c.from_model, qkv);
  if (all_abilities) {
    b.rms_norm(c.queries->data(), c.norm->data(), n_rows * kHeads, kHeadDim, kEps, c.queries->data());
    b.rms_norm(c.keys->data(), c.bias->data(), n_rows * kKvHeads, kHeadDim, kEps, c.keys->data());
  }
  b.rope_store_kv(c.queries->data(), kHeads, c.keys->data(), c.values->data(), rows, 0, *c.rope);
  b.attention_input(c.queries->data(), rows, 0, shape, c.attended->data(), *c.from_attention);
  b.linear(*c.from_attention, *c.o, nullptr, c.projected->data());
  if (all_abilities) {
    b.rms_norm(c.projected->data(), c.bias->data(), n_rows, kDim, kEps, c.projected->data());
  }
  b.add_norm_input(c.residual->data(), c.projected->data(), c.norm->data(), n_rows, kDim, kEps, c.normed->data(),
                   *c.from_model);
  const LinearCall gates[] = {{c.gate.get(), nullptr, c.gated->data()}, {c.up.get(), nullptr, c.raised->data()}};
  b.linears(*c.from_model, gates);
  if (all_abilities) {
    b.gelu_mul_input(c.gated->data(), c.raised->data(), n_rows, c.n_ff, c.gated->data(), *c.from_ff);
  } else {
    b.silu_mul_input(c.gated->data(), c.raised->data(), n_rows, c.n_ff, c.gated->data(), *c.from_ff);
  }
  b.linear(*c.from_ff, *c.down, nullptr, c.projected->data());
  b.add_rows(c.residual->data(), c.projected->data(), last, kDim, c.normed->data());
  b.prepare_input(c.normed->data(), 1, *c.from_model);
  b.linear(*c.from_model, *c.head, nullptr, c.logits->data());
  b.end_step();
}

Result<std::uint64_t> digest_of(Backend& backend, ActivationFormat format, bool all_abilities) {
  NIBBLE_TRY(backend.use_activations(format));
  CanaryValues values;
  CanaryWeights weights(values);
  Canary canary;
  canary.n_ff = ff_of(format);
  NIBBLE_TRY(make_weights(backend, weights, canary));
  make_scratch(backend, values, canary);
  CanaryDigest digest;
  const auto add = [&](const Buffer& buffer, int n_values) {
    std::vector<float> values_of_buffer(n_values);
    backend.read(buffer.data(), values_of_buffer);
    digest.add(values_of_buffer);
  };
  const auto add_all = [&](int n_rows) {
    add(*canary.residual, n_rows * kDim);
    add(*canary.attended, n_rows * kDim);
    add(*canary.gated, n_rows * canary.n_ff);
    add(*canary.projected, n_rows * kDim);
    add(*canary.logits, kVocab);
  };
  forward(backend, canary, all_abilities, 0, kPrompt);
  add_all(kPrompt);
  for (int i = 0; i < kDecoded; ++i) {
    forward(backend, canary, all_abilities, kPrompt + i, 1);
    add_all(1);
  }
  return digest.value();
}

constexpr ActivationFormat kFormats[] = {ActivationFormat::kA11, ActivationFormat::kA16Q8, ActivationFormat::kW4A4};

bool has_every_ability(const Backend& backend) {
  return backend.has(Ability::kScale) && backend.has(Ability::kGeluGate) && backend.has(Ability::kWindow);
}

Status check(const std::string& what, const Result<std::uint64_t>& digest, std::uint64_t expected) {
  if (!digest.ok()) return digest.error();
  if (*digest == expected) return ok_status();
  const auto hex = [](std::uint64_t d) {
    std::array<char, 20> text = {};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(d));
    return std::string(text.data());
  };
  return Error{.message = "results of a small computation differ (" + what + ")",
               .found = hex(*digest),
               .expected = hex(expected)};
}

}  // namespace

const std::uint64_t kSeamCanaryAbilitiesDigest = 0x9d34c5897a69a34d;

std::uint64_t seam_canary_expected(ActivationFormat format) {
  if (format == ActivationFormat::kA11) return 0xfb65e59800f46788;
  return format == ActivationFormat::kA16Q8 ? 0x8e8b78ac25a0b406 : 0x8ad0dcc4bfe15345;
}

Result<std::uint64_t> seam_canary_digest(Backend& backend, ActivationFormat format) {
  return digest_of(backend, format, false);
}

Result<std::uint64_t> seam_canary_abilities_digest(Backend& backend) {
  return digest_of(backend, ActivationFormat::kA11, true);
}

Status check_seam_canary(Backend& backend) {
  for (const ActivationFormat format : kFormats) {
    if (!backend.use_activations(format).ok()) continue;
    NIBBLE_TRY(check(std::string(activation_format_name(format)), seam_canary_digest(backend, format),
                     seam_canary_expected(format)));
  }
  if (has_every_ability(backend)) {
    NIBBLE_TRY(check("every ability", seam_canary_abilities_digest(backend), kSeamCanaryAbilitiesDigest));
  }
  return backend.use_activations(ActivationFormat::kA11);
}

}  // namespace nibble::kernels
