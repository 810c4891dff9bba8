// Keeps the first layers and the first tokens of a model, so that real weights can travel to a machine that is reached
// by small transfers only. The tokenizer must be byte-level BPE whose token 256 + i is the result of merge i, as those
// of gpt2 and qwen2 are: its first tokens are a tokenizer by themselves. Deterministic: the same arguments give the
// same file.
//
// usage: cut_model IN.gguf OUT.gguf N_LAYERS N_TOKENS
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"

namespace nibble {
namespace {

constexpr std::uint64_t kByteTokens = 256;

struct Cut {
  std::uint64_t n_layers = 0;
  std::uint64_t n_tokens = 0;
};

// An array of fixed-size elements, shortened.
GgufValue shortened(const GgufValue& array, std::uint64_t n, std::vector<std::byte>& memory) {
  constexpr std::size_t kHeader = 12;  // element type, count
  memory.assign(
      array.encoding().begin(),
      array.encoding().begin() + static_cast<std::ptrdiff_t>(kHeader + n * gguf_scalar_bytes(array.element_type())));
  std::memcpy(memory.data() + 4, &n, sizeof n);
  return {GgufType::kArray, memory};
}

Status copy_metadata(const GgufFile& from, const Cut& cut, GgufWriter& to) {
  NIBBLE_ASSIGN(const std::string_view architecture, from.require_string("general.architecture"));
  const std::string block_count = std::string(architecture) + ".block_count";
  std::vector<std::byte> memory;
  for (const GgufEntry& entry : from.metadata()) {
    const auto put_first = [&](std::uint64_t n) {
      auto strings = *entry.value.as_strings();
      strings.resize(n);
      to.add_strings(entry.key, strings);
    };
    if (entry.key == block_count) {
      to.add_u32(entry.key, static_cast<std::uint32_t>(cut.n_layers));
    } else if (entry.key == "tokenizer.ggml.tokens") {
      put_first(cut.n_tokens);
    } else if (entry.key == "tokenizer.ggml.merges") {
      put_first(cut.n_tokens - kByteTokens);
    } else if (entry.key == "tokenizer.ggml.token_type" || entry.key == "tokenizer.ggml.scores") {
      to.add_value(entry.key, shortened(entry.value, cut.n_tokens, memory));
    } else if (entry.key.ends_with("_token_id") && entry.value.as_uint().value_or(0) >= cut.n_tokens) {
      continue;  // a token that is cut off
    } else {
      to.add_value(entry.key, entry.value);
    }
  }
  to.add_string("general.description", fmt::format("the first {} layers and {} tokens", cut.n_layers, cut.n_tokens));
  return ok_status();
}

bool is_kept(std::string_view name, const Cut& cut) {
  if (!name.starts_with("blk.")) return true;
  std::uint64_t layer = 0;
  std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer < cut.n_layers;
}

Status cut_model(const std::string& in, const std::string& out, const Cut& cut) {
  NIBBLE_ASSIGN(const GgufFile from, GgufFile::open(in));
  GgufWriter to;
  NIBBLE_TRY(copy_metadata(from, cut, to));
  std::vector<TensorView> kept;
  for (TensorView tensor : from.tensors()) {
    if (!is_kept(tensor.name, cut)) continue;
    if (tensor.name == "token_embd.weight" || tensor.name == "output.weight") {
      tensor.bytes = tensor.row_span(0, cut.n_tokens);
      tensor.shape = {tensor.cols(), cut.n_tokens};
    }
    to.declare_tensor(tensor.name, tensor.dtype, tensor.shape);
    kept.push_back(tensor);
  }
  NIBBLE_TRY(to.begin(out));
  for (const TensorView& tensor : kept) NIBBLE_TRY(to.append(tensor.name, tensor.bytes));
  return to.finish();
}

bool parse(std::string_view text, std::uint64_t least, std::uint64_t& value) {
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() && value >= least;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Cut cut;
  if (argc != 5 || !nibble::parse(argv[3], 1, cut.n_layers) ||
      !nibble::parse(argv[4], nibble::kByteTokens + 1, cut.n_tokens)) {
    fmt::print(stderr, "usage: cut_model IN.gguf OUT.gguf N_LAYERS N_TOKENS\n");
    return 2;
  }
  const nibble::Status status = nibble::cut_model(argv[1], argv[2], cut);
  if (status.ok()) return 0;
  fmt::print(stderr, "cut_model: {}\n", status.error().to_string());
  return 1;
}
