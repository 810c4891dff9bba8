#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/machine.h"
#include "base/out_of_memory.h"

namespace nibble::engine {
namespace {

constexpr int kDefaultContext = 8192;  // bounds the cache of a model whose context is very long; more can be asked for
constexpr int kLogitsChunk = 16;       // rows of a step whose logits are all wanted: 600 KB a row at 152k tokens

Error does_not_fit_memory(std::uint64_t bytes, int n_ctx, std::uint64_t available) {
  const std::uint64_t per_position = std::max<std::uint64_t>(bytes / static_cast<std::uint64_t>(n_ctx), 1);
  Error error = not_enough_memory(fmt::format("a context of {} positions", n_ctx), bytes,
                                  fmt::format("pass a smaller {{ctx}}: fewer than {} fit", available / per_position));
  error.expected += fmt::format(", {} bytes a position", per_position);
  return error;
}

kernels::KvShape cache_shape_of(const model::Config& c, int n_ctx, int step_rows) {
  kernels::KvShape shape{.n_layers = c.n_layers, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .capacity = n_ctx};
  if (c.window == 0) return shape;
  for (int layer = 0; layer < c.n_layers; ++layer) shape.windows.push_back(c.has_window(layer) ? c.window : 0);
  shape.step_rows = step_rows;
  return shape;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::create(model::Model& model, const SessionOptions& options) {
  const int limit = model.config.context_length;
  if (options.n_ctx < 0 || options.n_ctx > limit) {
    return Error{.message = fmt::format("a context of {} positions is not possible with this model", options.n_ctx),
                 .file = model.checkpoint.file().path(),
                 .found = fmt::format("{}", options.n_ctx),
                 .expected = fmt::format("1..{}, the model's context length", limit),
                 .hint = "pass a smaller {ctx}"};
  }
  if (options.prefill_chunk < 1) {
    return Error{.message = "a prefill chunk has at least one token",
                 .found = fmt::format("{}", options.prefill_chunk),
                 .expected = "1 or more"};
  }
  const int n_ctx = options.n_ctx > 0 ? options.n_ctx : std::min(limit, kDefaultContext);
  const int rows = std::min(options.prefill_chunk, n_ctx);
  NIBBLE_TRY(model.backend->admit({.kv_cache = model.backend->kv_cache_bytes(cache_shape_of(model.config, n_ctx, rows)),
                                   .scratch = model::Activations::bytes(model.config, rows)}));
  const std::uint64_t available = available_memory_bytes();
  const auto positions = static_cast<std::uint64_t>(n_ctx);
  const auto rope_bytes = positions * static_cast<std::uint64_t>(model.config.rope.rotary_dim) * sizeof(float);
  if (2 * rope_bytes > available) return does_not_fit_memory(2 * rope_bytes, n_ctx, available);  // once in its making
  auto session = or_out_of_memory(fmt::format("a context of {} positions", n_ctx), [&] {
    return Result<std::unique_ptr<Session>>(std::unique_ptr<Session>(new Session(model, options, n_ctx)));
  });
  NIBBLE_TRY(model.backend->made());
  // Pages of the cache are not touched before a sequence reaches them: where they would not all fit, say so now.
  if (session.ok() && (*session)->cache_bytes() > available) {
    return does_not_fit_memory((*session)->cache_bytes(), n_ctx, available);
  }
  return session;
}

Session::Session(model::Model& model, const SessionOptions& options, int n_ctx)
    : model_(model),
      transformer_(model.config, model.weights, *model.backend, std::min(options.prefill_chunk, n_ctx), n_ctx),
      cache_(model.backend->make_kv_cache(cache_shape_of(model.config, n_ctx, std::min(options.prefill_chunk, n_ctx)))),
      logits_(model.config.vocab_size),
      chunk_(std::min(options.prefill_chunk, n_ctx)) {}

Error Session::does_not_fit(std::size_t n_tokens) const {
  return Error{.message = fmt::format("{} tokens do not fit into a context of {}", n_tokens, n_ctx()),
               .found = fmt::format("{} tokens", n_tokens),
               .expected = fmt::format("at most {} (the model allows {})", n_ctx(), model_.config.context_length),
               .hint = n_ctx() < model_.config.context_length ? "pass a larger {ctx}; or shorten the prompt"
                                                              : "shorten the prompt"};
}

Status Session::run_chunk(std::span<const std::int32_t> tokens, const LogitsCallback& on_logits, bool wants_last) {
  const std::int64_t first = static_cast<std::int64_t>(tokens_.size());
  const std::size_t vocab_size = logits_.size();
  rows_.clear();
  logit_rows_.clear();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    rows_.push_back({cache_.get(), static_cast<std::int32_t>(first + static_cast<std::int64_t>(i))});
    if (on_logits || (wants_last && i + 1 == tokens.size())) logit_rows_.push_back(static_cast<std::int32_t>(i));
  }
  std::span<float> out(logits_.data(), logit_rows_.size() * vocab_size);
  if (on_logits) {
    all_logits_.resize(logit_rows_.size() * vocab_size);
    out = all_logits_;
  }
  Status status = transformer_.forward({.tokens = tokens, .rows = rows_, .logit_rows = logit_rows_}, out);
  if (!status.ok()) {
    Error error = std::move(status).error();
    error.file = model_.checkpoint.file().path();
    return error;
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (on_logits) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      on_logits(first + static_cast<std::int64_t>(i), out.subspan(i * vocab_size, vocab_size));
    }
    std::copy(out.end() - static_cast<std::ptrdiff_t>(vocab_size), out.end(), logits_.begin());
  }
  return ok_status();
}

Status Session::prefill(std::span<const std::int32_t> tokens, const LogitsCallback& on_logits,
                        const KeepGoing& keep_going) {
  if (tokens.empty()) {
    return Error{.message = "the prompt is empty",
                 .found = "0 tokens",
                 .expected = "at least one token",
                 .hint = "this model adds no BOS token of its own; give it some text"};
  }
  if (tokens.size() > static_cast<std::size_t>(n_ctx())) return does_not_fit(tokens.size());
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= model_.config.vocab_size) {
      return Error{.message = "a token id is outside of the vocabulary",
                   .found = fmt::format("{}", token),
                   .expected = fmt::format("0..{}", model_.config.vocab_size - 1)};
    }
  }
  const auto differs = std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end()).second;
  // The last token is always run again: its logits are wanted, and they are not kept in the cache.
  std::size_t done = std::min(static_cast<std::size_t>(differs - tokens.begin()), tokens.size() - 1);
  // Layers with a window may no longer hold what the first new position sees: then all of them are new.
  done = static_cast<std::size_t>(cache_->rewind(static_cast<int>(done)));
  reused_ = static_cast<int>(done);
  tokens_.resize(done);
  while (done < tokens.size() && (!keep_going || keep_going())) {
    const std::size_t rows = static_cast<std::size_t>(on_logits ? std::min(chunk_, kLogitsChunk) : chunk_);
    const std::size_t n = std::min(rows, tokens.size() - done);
    NIBBLE_TRY(run_chunk(tokens.subspan(done, n), on_logits, done + n == tokens.size()));
    done += n;
  }
  return ok_status();
}

Status Session::decode(std::int32_t token) {
  if (tokens_.size() >= static_cast<std::size_t>(n_ctx())) return does_not_fit(tokens_.size() + 1);
  if (token < 0 || token >= model_.config.vocab_size) {
    return Error{.message = "a token id is outside of the vocabulary",
                 .found = fmt::format("{}", token),
                 .expected = fmt::format("0..{}", model_.config.vocab_size - 1)};
  }
  return run_chunk(std::span(&token, 1), {}, true);
}

}  // namespace nibble::engine
