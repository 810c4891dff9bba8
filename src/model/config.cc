#include "model/config.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "model/metadata_keys.h"

namespace nibble::model {
namespace {

constexpr std::uint64_t kMaxDimension = 1u << 24;  // far above any model; keeps every product inside 64 bits

// Looks keys up under the architecture's prefix, and remembers which.
class Reader {
 public:
  Reader(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string key(std::string_view name) { return *read_.insert(prefix_ + std::string(name)).first; }
  const std::set<std::string, std::less<>>& keys_read() const { return read_; }

  Error refuse(std::string_view name, std::string found, std::string expected, std::string message) const {
    return Error{.message = std::move(message),
                 .file = file_.path(),
                 .key = prefix_ + std::string(name),
                 .found = std::move(found),
                 .expected = std::move(expected)};
  }

  Result<int> dimension(std::string_view name) {
    NIBBLE_ASSIGN(const std::uint64_t value, file_.require_uint(key(name)));
    return in_range(name, value);
  }

  Result<int> dimension_or(std::string_view name, int absent) {
    NIBBLE_ASSIGN(const std::optional<std::uint64_t> value, file_.find_uint(key(name)));
    if (!value) return absent;
    return in_range(name, *value);
  }

  Result<double> number_or(std::string_view name, double absent) {
    NIBBLE_ASSIGN(const std::optional<double> value, file_.find_float(key(name)));
    if (!value) return absent;
    if (!std::isfinite(*value))
      return refuse(name, fmt::format("{}", *value), "a finite number", "bad hyper-parameter");
    return *value;
  }

 private:
  Result<int> in_range(std::string_view name, std::uint64_t value) const {
    if (value == 0 || value > kMaxDimension) {
      return refuse(name, fmt::format("{}", value), fmt::format("1..{}", kMaxDimension), "bad hyper-parameter");
    }
    return static_cast<int>(value);
  }

  const GgufFile& file_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
};

std::string known_architectures() {
  std::string names;
  for (const Architecture* a : architectures()) names += (names.empty() ? "" : ", ") + std::string(a->name);
  return names;
}

Result<std::vector<float>> read_freq_factors(const GgufFile& file, int n_pairs) {
  const TensorView* tensor = file.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>{};
  const Shape expected = {static_cast<std::uint64_t>(n_pairs)};
  if (tensor->dtype != DType::kF32 || tensor->shape != expected) {
    return Error{.message = "bad frequency factors",
                 .file = file.path_of(*tensor),
                 .tensor = "rope_freqs.weight",
                 .found = fmt::format("{} {}", dtype_name(tensor->dtype), tensor->shape.to_string()),
                 .expected = fmt::format("F32 {}", expected.to_string())};
  }
  std::vector<float> factors(n_pairs);
  std::memcpy(factors.data(), tensor->bytes.data(), tensor->bytes.size());
  for (float factor : factors) {
    if (!(factor > 0) || !std::isfinite(factor)) {
      return Error{.message = "bad frequency factors",
                   .file = file.path_of(*tensor),
                   .tensor = "rope_freqs.weight",
                   .found = fmt::format("{}", factor),
                   .expected = "finite and positive"};
    }
  }
  return factors;
}

// Some converters write the two bases of a family with windows as rope.global.freq_base and rope.local.freq_base.
Result<double> read_freq_base(Reader& reader, const Architecture& family) {
  constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN(), kDefaultOfGguf = 10000;
  if (!family.requires_freq_base) return reader.number_or("rope.freq_base", kDefaultOfGguf);
  NIBBLE_ASSIGN(const double global, reader.number_or("rope.global.freq_base", kAbsent));
  NIBBLE_ASSIGN(const double base, reader.number_or("rope.freq_base", global));
  if (!std::isnan(base)) return base;
  return reader.refuse("rope.freq_base", "absent", "the base of the layers without a window", "no rotary base");
}

Status read_yarn(Reader& reader, int context_length, RopeConfig& rope) {
  NIBBLE_ASSIGN(rope.original_context, reader.dimension_or("rope.scaling.original_context_length", context_length));
  NIBBLE_ASSIGN(rope.attention_factor, reader.number_or("rope.scaling.attn_factor", 1.0));
  NIBBLE_ASSIGN(rope.beta_fast, reader.number_or("rope.scaling.yarn_beta_fast", 32.0));
  NIBBLE_ASSIGN(rope.beta_slow, reader.number_or("rope.scaling.yarn_beta_slow", 1.0));
  if (rope.beta_fast <= 0 || rope.beta_slow <= 0) {
    return reader.refuse("rope.scaling.yarn_beta_fast", fmt::format("{} and {}", rope.beta_fast, rope.beta_slow),
                         "positive betas", "bad rotary scaling");
  }
  return ok_status();
}

Result<RopeConfig> read_rope(const GgufFile& file, Reader& reader, const Config& config) {
  RopeConfig rope;
  NIBBLE_ASSIGN(rope.rotary_dim, reader.dimension_or("rope.dimension_count", config.head_dim));
  if (rope.rotary_dim % 2 != 0 || rope.rotary_dim > config.head_dim) {
    return reader.refuse("rope.dimension_count", fmt::format("{}", rope.rotary_dim),
                         fmt::format("even and at most head_dim = {}", config.head_dim), "bad rotary dimension");
  }
  NIBBLE_ASSIGN(rope.freq_base, read_freq_base(reader, *config.architecture));
  if (rope.freq_base <= 1) {
    return reader.refuse("rope.freq_base", fmt::format("{}", rope.freq_base), "above 1", "bad rotary base");
  }
  NIBBLE_ASSIGN(const std::optional<std::string_view> scaling, file.find_string(reader.key("rope.scaling.type")));
  NIBBLE_ASSIGN(const double old_factor, reader.number_or("rope.scale_linear", 1.0));
  NIBBLE_ASSIGN(rope.factor, reader.number_or("rope.scaling.factor", old_factor));
  if (rope.factor < 1) {
    return reader.refuse("rope.scaling.factor", fmt::format("{}", rope.factor), "at least 1", "bad rotary scaling");
  }
  NIBBLE_TRY(read_yarn(reader, config.context_length, rope));
  if (scaling == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else if (scaling == "linear" || (!scaling && rope.factor != 1)) {  // a factor without a type is linear in GGUF
    rope.scaling = RopeScaling::kLinear;
  } else if (scaling && *scaling != "none") {
    return reader.refuse("rope.scaling.type", std::string(*scaling), "none, linear or yarn", "unknown rotary scaling");
  }
  NIBBLE_ASSIGN(rope.freq_factors, read_freq_factors(file, rope.rotary_dim / 2));
  return rope;
}

// The key of the pattern is younger than the family, whose converters leave it out.
Status read_window(Reader& reader, Config& config) {
  const Architecture& family = *config.architecture;
  if (family.window_period == 0) return ok_status();
  NIBBLE_ASSIGN(config.window, reader.dimension_or("attention.sliding_window", 0));
  NIBBLE_ASSIGN(config.window_period, reader.dimension_or("attention.sliding_window_pattern", family.window_period));
  config.window_rope.rotary_dim = config.rope.rotary_dim;
  NIBBLE_ASSIGN(const double local, reader.number_or("rope.local.freq_base", family.window_freq_base));
  NIBBLE_ASSIGN(config.window_rope.freq_base, reader.number_or("rope.freq_base_swa", local));
  if (config.window_rope.freq_base <= 1) {
    return reader.refuse("rope.freq_base_swa", fmt::format("{}", config.window_rope.freq_base), "above 1",
                         "bad rotary base");
  }
  return ok_status();
}

Status check_heads(const Reader& reader, const Config& c, int value_length, int named_head_dim) {
  if (c.n_heads % c.n_kv_heads != 0) {
    return reader.refuse("attention.head_count", fmt::format("{}", c.n_heads),
                         fmt::format("a multiple of head_count_kv = {}", c.n_kv_heads), "bad head counts");
  }
  if (value_length != c.head_dim) {
    return reader.refuse("attention.value_length", fmt::format("{}", value_length),
                         fmt::format("attention.key_length = {}", c.head_dim), "keys and values of different sizes");
  }
  if (named_head_dim != c.head_dim) {
    return reader.refuse("attention.head_dim", fmt::format("{}", named_head_dim),
                         fmt::format("attention.key_length, or embedding_length / head_count: {}", c.head_dim),
                         "head sizes disagree");
  }
  return ok_status();
}

}  // namespace

Result<Config> read_config(const GgufFile& file) {
  NIBBLE_ASSIGN(const std::string_view name, file.require_string("general.architecture"));
  Config c;
  c.architecture = find_architecture(name);
  if (c.architecture == nullptr) {
    return Error{.message = fmt::format("model family '{}' is not supported", name),
                 .file = file.path(),
                 .key = "general.architecture",
                 .found = std::string(name),
                 .expected = known_architectures()};
  }
  Reader reader(file, name);
  NIBBLE_ASSIGN(c.n_layers, reader.dimension("block_count"));
  NIBBLE_ASSIGN(c.d_model, reader.dimension("embedding_length"));
  NIBBLE_ASSIGN(c.d_ff, reader.dimension("feed_forward_length"));
  NIBBLE_ASSIGN(c.n_heads, reader.dimension("attention.head_count"));
  NIBBLE_ASSIGN(c.n_kv_heads, reader.dimension_or("attention.head_count_kv", c.n_heads));
  NIBBLE_ASSIGN(c.context_length, reader.dimension("context_length"));
  if (c.d_model % c.n_heads != 0 && file.find_value(reader.key("attention.key_length")) == nullptr) {
    return reader.refuse("embedding_length", fmt::format("{}", c.d_model),
                         fmt::format("a multiple of head_count = {}, or attention.key_length", c.n_heads),
                         "bad head size");
  }
  NIBBLE_ASSIGN(c.head_dim, reader.dimension_or("attention.key_length", c.d_model / c.n_heads));
  NIBBLE_ASSIGN(const int value_length, reader.dimension_or("attention.value_length", c.head_dim));
  NIBBLE_ASSIGN(const int named_head_dim, reader.dimension_or("attention.head_dim", c.head_dim));  // of some converters
  NIBBLE_TRY(check_heads(reader, c, value_length, named_head_dim));

  NIBBLE_ASSIGN(const double eps, file.require_float(reader.key("attention.layer_norm_rms_epsilon")));
  c.rms_norm_eps = static_cast<float>(eps);
  if (!(c.rms_norm_eps > 0) || c.rms_norm_eps > 1) {
    return reader.refuse("attention.layer_norm_rms_epsilon", fmt::format("{}", eps), "in (0, 1]", "bad epsilon");
  }
  c.score_width = c.n_layers == c.architecture->n_layers_scaled_by_width ? c.d_model / c.n_heads : c.head_dim;
  NIBBLE_ASSIGN(c.rope, read_rope(file, reader, c));
  NIBBLE_TRY(read_window(reader, c));

  NIBBLE_ASSIGN(const TensorView embedding, file.require_tensor("token_embd.weight"));
  if (embedding.shape.rank() != 2 || embedding.rows() > kMaxDimension) {
    return Error{.message = "bad embedding table",
                 .file = file.path(),
                 .tensor = "token_embd.weight",
                 .found = embedding.shape.to_string(),
                 .expected = fmt::format("[{}, vocabulary]", c.d_model)};
  }
  c.vocab_size = static_cast<int>(embedding.rows());
  NIBBLE_ASSIGN(const int declared, reader.dimension_or("vocab_size", c.vocab_size));
  if (declared != c.vocab_size) {
    return reader.refuse("vocab_size", fmt::format("{}", declared),
                         fmt::format("{} rows of token_embd.weight", c.vocab_size),
                         "vocabulary size and embedding table disagree");
  }
  NIBBLE_TRY(check_metadata_keys(file, *c.architecture, reader.keys_read()));
  return c;
}

}  // namespace nibble::model
