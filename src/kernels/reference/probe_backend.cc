#include "kernels/reference/probe_backend.h"

#include <cmath>
#include <map>
#include <utility>

#include "kernels/reference/reference_backend.h"
#include "oracle/activations.h"
#include "oracle/attention.h"
#include "oracle/hadamard.h"

namespace nibble::kernels {
namespace {

constexpr int kInputsPerLayer = 4;  // prepare_input calls of model/transformer for one layer

// The caches of both arithmetics, filled alike.
struct ProbeCache final : KvCache {
  std::size_t bytes() const override { return floats->bytes() + integers->bytes(); }
  std::unique_ptr<KvCache> floats;
  std::unique_ptr<KvCache> integers;
};

class Probe final : public ProbeBackend {
 public:
  explicit Probe(int n_threads)
      : floats_(make_reference_backend(
            {ReferenceActivations::kFloat, ReferenceAttention::kFloat, /*quantize_inputs=*/true, n_threads})),
        integers_(make_reference_backend(
            {ReferenceActivations::kFloat, ReferenceAttention::kInteger, /*quantize_inputs=*/true, n_threads})) {}

  std::string_view name() const override { return "probe"; }
  std::string description() const override { return "float reference with the contract's errors measured beside it"; }

  bool has(Ability) const override { return true; }

  std::unique_ptr<Buffer> make_buffer(std::size_t n) override { return floats_->make_buffer(n); }
  std::unique_ptr<Buffer> make_vector(std::span<const float> v) override { return floats_->make_vector(v); }
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource& w) override { return floats_->make_linear(w); }
  Result<std::unique_ptr<Embedding>> make_embedding(const WeightSource& t) override {
    return floats_->make_embedding(t);
  }
  std::unique_ptr<LinearInput> make_linear_input(int rows, int n) override {
    return floats_->make_linear_input(rows, n);
  }
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int dim, bool interleaved) override {
    return floats_->make_rope_table(cos_sin, dim, interleaved);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override {
    auto cache = std::make_unique<ProbeCache>();
    cache->shape = shape;
    cache->floats = floats_->make_kv_cache(shape);
    cache->integers = integers_->make_kv_cache(shape);
    return cache;
  }

  void begin_step(int n_flags) override {
    n_inputs_ = 0;
    floats_->begin_step(n_flags);
    integers_->begin_step(n_flags);
  }
  std::span<const std::uint8_t> end_step() override { return floats_->end_step(); }

  void embed(const Embedding& t, std::span<const std::int32_t> tokens, float* out) override {
    floats_->embed(t, tokens, out);
  }
  void rms_norm(const float* x, const float* w, int n_rows, int dim, float eps, float* out) override {
    floats_->rms_norm(x, w, n_rows, dim, eps, out);
  }
  void linear(const LinearInput& in, const Linear& w, const float* bias, float* out) override {
    floats_->linear(in, w, bias, out);
  }
  void rope(float* x, int n_heads, int dim, std::span<const TokenRow> rows, const RopeTable& table) override {
    floats_->rope(x, n_heads, dim, rows, table);
  }
  void silu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    floats_->silu_mul(gate, up, n, out);
  }
  void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    floats_->gelu_mul(gate, up, n, out);
  }
  void scale(float* x, float factor, std::size_t n) override { floats_->scale(x, factor, n); }
  void add(float* x, const float* y, std::size_t n) override { floats_->add(x, y, n); }
  void add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) override {
    floats_->add_rows(x, y, indices, dim, out);
  }
  void read(const float* source, std::span<float> destination) override { floats_->read(source, destination); }

  void prepare_input(const float* x, int n_rows, LinearInput& input) override;
  void store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) override;
  void attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                 float* out) override;

  std::vector<ProbeFigure> figures() const override;

 private:
  using Key = std::pair<std::pair<ProbeKind, int>, int>;  // kind, layer, index

  ErrorSum& sum(ProbeKind kind, int layer, int index) { return sums_[{{kind, layer}, index}]; }
  void measure_head(std::span<const float> x, int max, ErrorSum& error);
  static std::vector<TokenRow> with_cache(std::span<const TokenRow> rows, std::unique_ptr<KvCache> ProbeCache::*member);

  std::unique_ptr<Backend> floats_;
  std::unique_ptr<Backend> integers_;
  int n_inputs_ = 0;
  std::map<Key, ErrorSum> sums_;
};

std::vector<TokenRow> Probe::with_cache(std::span<const TokenRow> rows, std::unique_ptr<KvCache> ProbeCache::*member) {
  std::vector<TokenRow> out;
  for (const TokenRow& row : rows) out.push_back({(static_cast<ProbeCache&>(*row.cache).*member).get(), row.pos});
  return out;
}

void Probe::prepare_input(const float* x, int n_rows, LinearInput& input) {
  floats_->prepare_input(x, n_rows, input);
  ErrorSum& error = sum(ProbeKind::kInput, n_inputs_ / kInputsPerLayer, n_inputs_ % kInputsPerLayer);
  ++n_inputs_;
  for (int row = 0; row < n_rows; ++row) {
    const float* from = x + static_cast<std::size_t>(row) * input.n_in;
    const oracle::A11 a = oracle::quantize_a11({from, static_cast<std::size_t>(input.n_in)});
    for (int i = 0; i < input.n_in; ++i) error.add(from[i], a.q[i] * a.d[i / oracle::kA11Block]);
  }
}

// The butterfly is a rotation but for a factor, so the error relative to the rotated head is that of the head.
void Probe::measure_head(std::span<const float> x, int max, ErrorSum& error) {
  std::vector<float> rotated(x.begin(), x.end());
  oracle::hadamard(rotated);
  const oracle::QuantizedHead head = oracle::quantize_head(x, max);
  for (std::size_t i = 0; i < x.size(); ++i) error.add(rotated[i], head.q[i] * head.scale);
}

void Probe::store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  floats_->store_kv(k, v, with_cache(rows, &ProbeCache::floats), layer);
  integers_->store_kv(k, v, with_cache(rows, &ProbeCache::integers), layer);
  const KvShape& shape = rows[0].cache->shape;
  const std::size_t dim = shape.head_dim;
  for (std::size_t i = 0; i < rows.size() * shape.n_kv_heads; ++i) {
    const int head = static_cast<int>(i % shape.n_kv_heads);
    measure_head({k + i * dim, dim}, oracle::kKeyMax, sum(ProbeKind::kKey, layer, head));
    measure_head({v + i * dim, dim}, oracle::kValueMax, sum(ProbeKind::kValue, layer, head));
  }
}

void Probe::attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                      float* out) {
  floats_->attention(q, with_cache(rows, &ProbeCache::floats), layer, shape, out);
  const std::size_t dim = shape.head_dim;
  std::vector<float> found(rows.size() * shape.n_heads * dim);
  integers_->attention(q, with_cache(rows, &ProbeCache::integers), layer, shape, found.data());
  for (std::size_t i = 0; i < rows.size() * shape.n_heads; ++i) {
    const int head = static_cast<int>(i % shape.n_heads);
    measure_head({q + i * dim, dim}, oracle::kQueryMax, sum(ProbeKind::kQuery, layer, head));
    ErrorSum& error = sum(ProbeKind::kAttention, layer, head);
    for (std::size_t j = i * dim; j < (i + 1) * dim; ++j) error.add(out[j], found[j]);
  }
}

std::vector<ProbeFigure> Probe::figures() const {
  std::vector<ProbeFigure> out;
  for (const auto& [key, error] : sums_) out.push_back({key.first.first, key.first.second, key.second, error});
  return out;
}

}  // namespace

double ErrorSum::relative_rms() const {
  return signal > 0 ? std::sqrt(noise / signal) : 0;
}

std::unique_ptr<ProbeBackend> make_probe_backend(int n_threads) {
  return std::make_unique<Probe>(n_threads);
}

}  // namespace nibble::kernels
