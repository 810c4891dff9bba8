#include "tests/engine/tiny_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "format/e4m3.h"
#include "format/half.h"
#include "io/fp8_weights.h"
#include "io/nvfp4_container.h"
#include "tensor/quant_block.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::testing {
namespace {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("nibble_test_{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes as_bytes(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Builder {
 public:
  explicit Builder(const TinySpec& spec) : spec_(spec), random_(spec.seed) {}

  void nvfp4(const std::string& name, std::uint64_t n_in, std::uint64_t n_out) {
    std::vector<std::uint8_t> codes(n_in / 2 * n_out);
    for (auto& byte : codes) byte = static_cast<std::uint8_t>(random_());
    std::vector<std::uint8_t> scales(n_in / 16 * n_out);
    for (auto& scale : scales) {  // mostly of one size, some zero, subnormal, negative or far away
      scale = static_cast<std::uint8_t>(0x68 + random_() % 16);
      if (random_() % 64 == 0) scale = static_cast<std::uint8_t>(random_() % 0x7F);
      if (random_() % 64 == 0) scale |= 0x80;
    }
    add(name, DType::kNVFP4_E2M1, {n_in, n_out}, as_bytes(codes));
    add(name + std::string(kScaleSuffix), DType::kF8_E4M3FN, {n_in / 16, n_out}, as_bytes(scales));
    const float amplitude = 0.4F / std::sqrt(static_cast<float>(n_in)) / 64;
    add(name + std::string(kTensorScaleSuffix), DType::kF32, {1}, as_bytes(std::vector<float>{amplitude}));
    if (!spec_.input_scales) return;
    const float input_scale = 20.0F + 3.0F * static_cast<float>(tensors_.size() % 5);  // of its own for every weight
    add(name + std::string(kInputScaleSuffix), DType::kF32, {1}, as_bytes(std::vector<float>{input_scale}));
  }

  // Every block-quantized type that the width allows, in turn.
  void quant(const std::string& name, std::uint64_t n_in, std::uint64_t n_out) {
    DType dtype = oracle::golden::kQuantTypes[n_quant_++ % std::size(oracle::golden::kQuantTypes)];
    if (n_in % dtype_info(dtype).block_size != 0) dtype = DType::kQ5_1;
    Bytes bytes = oracle::golden::quant_row(spec_.seed + n_quant_, dtype, n_in * n_out);
    const QuantFormat& format = *find_quant_format(dtype);
    const float amplitude = 1.0F / std::sqrt(static_cast<float>(n_in));
    for (std::size_t block = 0; block < bytes.size(); block += dtype_info(dtype).block_bytes) {
      for (const std::size_t offset : oracle::golden::scale_offsets(dtype)) {
        const bool is_minimum = !format.is_super && offset != 0;
        const auto largest = static_cast<float>(is_minimum ? -2 : format.largest_scale << (format.code_bits - 1));
        const auto scale = static_cast<std::uint16_t>(format::f32_to_f16(amplitude / largest));
        std::memcpy(&bytes[block + offset], &scale, sizeof scale);
      }
    }
    add(name, dtype, {n_in, n_out}, std::move(bytes));
  }

  // Scales of the tensor, of rows and of tiles, in turn.
  void fp8(const std::string& name, std::uint64_t n_in, std::uint64_t n_out) {
    std::vector<std::uint8_t> codes(n_in * n_out);
    for (auto& code : codes) code = format::e4m3_encode(64 * normal());
    const auto tiles = [](std::uint64_t n) { return (n + kFp8Tile - 1) / kFp8Tile; };
    const Shape shapes[] = {{1}, {n_out}, {tiles(n_in), tiles(n_out)}};
    const Shape& shape = shapes[n_fp8_++ % std::size(shapes)];
    std::vector<float> scales(shape.size());
    const float amplitude = 1 / std::sqrt(static_cast<float>(n_in)) / 64;
    for (float& scale : scales) scale = amplitude * (1 + 0.05F * normal());
    add(name, DType::kF8_E4M3FN, {n_in, n_out}, as_bytes(codes));
    add(name + std::string(kFp8ScaleSuffix), DType::kF32, shape, as_bytes(scales));
  }

  void attention(const std::string& name, std::uint64_t n_in, std::uint64_t n_out) {
    if (spec_.fp8) return fp8(name, n_in, n_out);
    linear(name, n_in, n_out);
  }

  void linear(const std::string& name, std::uint64_t n_in, std::uint64_t n_out) {
    const bool is_odd = n_linear_++ % 2 != 0;
    if (spec_.lane == Lane::kKquant || (spec_.lane == Lane::kMixed && is_odd)) {
      quant(name, n_in, n_out);
    } else {
      nvfp4(name, n_in, n_out);
    }
  }

  void f16(const std::string& name, std::uint64_t n_in, std::uint64_t n_out, float amplitude) {
    std::vector<std::uint16_t> values(n_in * n_out);
    for (auto& x : values) x = static_cast<std::uint16_t>(format::f32_to_f16(amplitude * normal()));
    add(name, DType::kF16, {n_in, n_out}, as_bytes(values));
  }

  void f32(const std::string& name, std::uint64_t n, float center, float amplitude) {
    std::vector<float> values(n);
    for (float& x : values) x = center + amplitude * normal();
    add(name, DType::kF32, {n}, as_bytes(values));
  }

  Status write(GgufWriter& writer, const std::string& path) {
    for (const Tensor& t : tensors_) writer.declare_tensor(t.name, t.dtype, t.shape);
    NIBBLE_TRY(writer.begin(path));
    for (const Tensor& t : tensors_) NIBBLE_TRY(writer.append(t.name, t.bytes));
    return writer.finish();
  }

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    Shape shape;
    Bytes bytes;
  };

  void add(const std::string& name, DType dtype, const Shape& shape, Bytes bytes) {
    if (name != spec_.skip_tensor) tensors_.push_back({name, dtype, shape, std::move(bytes)});
  }
  // Sum of 12 uniforms: about normal, and the same on every system, which std::normal_distribution is not.
  float normal() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(random_() >> 40) * 0x1p-24F;
    return sum;
  }

  const TinySpec& spec_;
  std::mt19937_64 random_;
  std::vector<Tensor> tensors_;
  std::size_t n_linear_ = 0;
  std::size_t n_quant_ = 0;
  std::size_t n_fp8_ = 0;
};

// The 256 byte tokens of the byte-level alphabet, two special tokens and the results of two merges.
std::vector<std::string> byte_vocabulary() {
  std::vector<std::string> tokens;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : next++;
    std::string text;
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
    tokens.push_back(text);
  }
  tokens.insert(tokens.end(), {"<|im_start|>", "<|im_end|>", "th", "the"});
  return tokens;
}

void add_metadata(const TinySpec& s, GgufWriter& w, const std::vector<std::string>& tokens) {
  const auto key = [&s](const char* name) { return s.architecture + "." + name; };
  w.add_string("general.architecture", s.architecture);
  w.add_u32(key("block_count"), s.n_layers);
  w.add_u32(key("embedding_length"), s.d_model);
  w.add_u32(key("feed_forward_length"), s.d_ff);
  w.add_u32(key("attention.head_count"), s.n_heads);
  w.add_u32(key("attention.head_count_kv"), s.n_kv_heads);
  w.add_u32(key("attention.key_length"), s.head_dim);
  w.add_u32(key("attention.value_length"), s.head_dim);
  w.add_u32(key("context_length"), s.context_length);
  w.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-5F);
  if (s.lane != Lane::kKquant) w.add_string(kWeightPrecisionKey, "nvfp4");
  if (s.input_scales) w.add_string(kActivationPrecisionKey, "nvfp4");
  if (s.muser_keys) w.add_string(kSchemaKey, kSchema);
  if (s.lane != Lane::kKquant && !s.muser_keys) w.add_string(kContractKey, s.lane == Lane::kNvfp4 ? "nc1" : "nk1");
  w.add_string("tokenizer.ggml.model", "gpt2");
  w.add_string("tokenizer.ggml.pre", "gpt-2");
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  w.add_strings("tokenizer.ggml.tokens", views);
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[256] = types[257] = 3;
  add_int_array(w, "tokenizer.ggml.token_type", types);
  w.add_strings("tokenizer.ggml.merges", std::vector<std::string_view>{"t h", "th e"});
  w.add_u32("tokenizer.ggml.eos_token_id", 257);
  if (!s.chat_template.empty()) w.add_string("tokenizer.chat_template", s.chat_template);
  if (s.architecture == "gemma3" && s.freq_base != 0) w.add_f32(key("rope.freq_base"), s.freq_base);
  if (s.window != 0) w.add_u32(key("attention.sliding_window"), s.window);
  if (s.window_pattern != 0) w.add_u32(key("attention.sliding_window_pattern"), s.window_pattern);
  if (s.metadata) s.metadata(w);
}

}  // namespace

std::string test_folder() {
  static const Folder folder;
  return folder.path();
}

void add_int_array(GgufWriter& writer, std::string_view key, const std::vector<std::int32_t>& values) {
  Bytes encoding(12 + 4 * values.size());
  const std::uint32_t type = static_cast<std::uint32_t>(GgufType::kI32);
  const std::uint64_t count = values.size();
  std::memcpy(encoding.data(), &type, 4);
  std::memcpy(encoding.data() + 4, &count, 8);
  std::memcpy(encoding.data() + 12, values.data(), 4 * values.size());
  writer.add_value(key, GgufValue(GgufType::kArray, encoding));
}

std::string write_tiny_model(const TinySpec& spec, const std::string& name) {
  const std::string path = test_folder() + "/" + name;
  NIBBLE_CHECK(write_tiny_model_to(spec, path).ok(), "a tiny model could not be written");
  return path;
}

Status write_tiny_model_to(const TinySpec& s, const std::string& path) {
  Builder b(s);
  const std::vector<std::string> tokens = byte_vocabulary();
  const std::uint64_t vocab = tokens.size() + s.vocab_extra;
  const std::uint64_t q_dim = std::uint64_t{s.n_heads} * s.head_dim;
  const std::uint64_t kv_dim = std::uint64_t{s.n_kv_heads} * s.head_dim;
  if (s.lane == Lane::kKquant) {
    b.quant("token_embd.weight", s.d_model, vocab);
  } else if (s.fp8 && !s.own_head) {
    b.fp8("token_embd.weight", s.d_model, vocab);
  } else {
    b.f16("token_embd.weight", s.d_model, vocab, 0.5F);
  }
  const bool is_gemma3 = s.architecture == "gemma3";
  const bool has_qk_norm = is_gemma3 || s.architecture == "qwen3";
  for (std::uint32_t i = 0; i < s.n_layers; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    b.f32(p + "attn_norm.weight", s.d_model, s.norm_weight, 0.1F);
    b.attention(p + "attn_q.weight", s.d_model, q_dim);
    b.attention(p + "attn_k.weight", s.d_model, kv_dim);
    b.attention(p + "attn_v.weight", s.d_model, kv_dim);
    if (s.architecture == "qwen2") {
      b.f32(p + "attn_q.bias", q_dim, 0, 0.3F);
      b.f32(p + "attn_k.bias", kv_dim, 0, 3.0F);
      b.f32(p + "attn_v.bias", kv_dim, 0, 0.1F);
    }
    if (has_qk_norm) b.f32(p + "attn_q_norm.weight", s.head_dim, s.norm_weight, 0.1F);
    if (has_qk_norm) b.f32(p + "attn_k_norm.weight", s.head_dim, s.norm_weight, 0.1F);
    b.attention(p + "attn_output.weight", q_dim, s.d_model);
    if (is_gemma3) b.f32(p + "post_attention_norm.weight", s.d_model, s.norm_weight, 0.1F);
    b.f32(p + "ffn_norm.weight", s.d_model, s.norm_weight, 0.1F);
    b.linear(p + "ffn_gate.weight", s.d_model, s.d_ff);
    b.linear(p + "ffn_up.weight", s.d_model, s.d_ff);
    b.linear(p + "ffn_down.weight", s.d_ff, s.d_model);
    if (is_gemma3) b.f32(p + "post_ffw_norm.weight", s.d_model, s.norm_weight, 0.1F);
  }
  b.f32("output_norm.weight", s.d_model, s.norm_weight, 0.1F);
  if (s.own_head) b.attention("output.weight", s.d_model, vocab);
  if (!s.extra_tensor.empty()) b.f32(s.extra_tensor, 16, 0, 1);

  GgufWriter writer;
  add_metadata(s, writer, tokens);
  return b.write(writer, path);
}

}  // namespace nibble::testing
