#include "measure/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/machine.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "engine/session.h"

namespace nibble::measure {
namespace {

constexpr std::size_t kPiece = 64;  // positions whose logits of both sides are held at a time

struct Counted {
  std::size_t in_window = 0;  // position in its window
  PositionDivergence divergence = {};
};

// Bands grow by four: what is new in a window lies at its beginning.
constexpr std::size_t kBands[] = {0, 16, 64, 256, 1024, 4096, 16384, 65536, std::size_t{1} << 20};

std::string band_name(std::size_t position) {
  const std::size_t* last = std::upper_bound(std::begin(kBands), std::end(kBands) - 1, position);
  return fmt::format("{}-{}", last[-1], *last - 1);
}

Json to_json(const DivergenceSummary& s) {
  return {{"positions", s.positions},
          {"scored", s.scored},
          {"a_perplexity", s.reference_perplexity},
          {"b_perplexity", s.candidate_perplexity},
          {"mean_kl", s.mean_kl},
          {"p99_kl", s.p99_kl},
          {"max_kl", s.max_kl},
          {"top1_agreement", s.top1_agreement},
          {"mean_drift", s.mean_drift},
          {"max_drift", s.max_drift}};
}

Json summary_of(std::span<const Counted> counted) {
  std::vector<PositionDivergence> positions;
  positions.reserve(counted.size());
  for (const Counted& c : counted) positions.push_back(c.divergence);
  return to_json(summarize(positions));
}

Json bands_of(std::span<const Counted> counted) {
  std::map<std::size_t, std::vector<PositionDivergence>> bands;  // by first position
  for (const Counted& c : counted) {
    bands[*(std::upper_bound(std::begin(kBands), std::end(kBands) - 1, c.in_window) - 1)].push_back(c.divergence);
  }
  Json json = Json::object();
  for (const auto& [first, positions] : bands) json[band_name(first)] = to_json(summarize(positions));
  return json;
}

Result<std::vector<std::int32_t>> tokens_of(const OpenSubject& subject, const Text& text,
                                            const QualityOptions& options) {
  NIBBLE_ASSIGN(auto tokens, subject.loaded->tokenizer.encode(text.content));
  if (options.max_tokens > 0 && tokens.size() > static_cast<std::size_t>(options.max_tokens))
    tokens.resize(static_cast<std::size_t>(options.max_tokens));
  return tokens;
}

// What a session is fed for a window.
std::vector<std::int32_t> fed_tokens(const OpenSubject& subject, std::span<const std::int32_t> text,
                                     const Window& window) {
  const auto tokens = text.subspan(window.begin, window.end - window.begin);
  std::vector<std::int32_t> fed(tokens.begin(), tokens.end());
  subject.loaded->tokenizer.put_bos(fed);
  return fed;
}

Result<std::unique_ptr<engine::Session>> make_session(OpenSubject& subject, const QualityOptions& options) {
  return engine::Session::create(*subject.loaded->model,
                                 {.n_ctx = options.window, .prefill_chunk = subject.subject.prefill_chunk});
}

Json receipt_head(const char* what, const QualityOptions& options) {
  Json json = {{"what", what}};
  json.update(program_facts());
  json.update(machine_facts());
  json["window"] = options.window;
  json["stride"] = options.stride > 0 ? options.stride : options.window;
  return json;
}

Json text_facts(const Text& text, std::size_t n_tokens) {
  return {{"file", text.file}, {"sha256", text.sha256}, {"tokens", n_tokens}};
}

struct Likelihood {
  std::size_t scored = 0;
  double sum = 0, squares = 0;

  void add(double nll) {
    ++scored;
    sum += nll;
    squares += nll * nll;
  }
  Json to_json() const {
    if (scored == 0) return {{"scored", 0}};
    const double n = static_cast<double>(scored), mean = sum / n;
    const double error = std::sqrt(std::max(0.0, squares / n - mean * mean) / n);
    return {{"scored", scored}, {"nll", mean}, {"nll_error", error}, {"perplexity", std::exp(mean)}};
  }
};

// Both sides of a comparison over one window, piece by piece, so that logits of few positions are held at a time.
class Comparer {
 public:
  Comparer(engine::Session& a, engine::Session& b) : a_(a), b_(b), pool_(hardware_threads()) {}

  // Appends the counted positions of a window, whose tokens are fed as `tokens`.
  Status window(std::span<const std::int32_t> text, std::span<const std::int32_t> tokens, const Window& window,
                std::vector<Counted>& out) {
    a_.clear();
    b_.clear();
    const std::size_t first_counted = window.first_counted - window.begin;
    for (std::size_t begin = 0; begin < tokens.size(); begin += kPiece) {
      const std::size_t end = std::min(begin + kPiece, tokens.size());
      NIBBLE_TRY(logits_of(a_, tokens.first(end), a_logits_));
      NIBBLE_TRY(logits_of(b_, tokens.first(end), b_logits_));
      const std::size_t first = std::clamp(first_counted, begin, end);
      const std::size_t old = out.size();
      out.resize(old + end - first);
      pool_.parallel_for(end - first, 1, [&](std::size_t from, std::size_t to, int) {
        for (std::size_t i = from; i < to; ++i) {
          const std::size_t p = first + i, absolute = window.begin + p;
          const std::int32_t next = absolute + 1 < text.size() ? text[absolute + 1] : -1;
          out[old + i] = {p, diverge(row(a_logits_, p - begin), row(b_logits_, p - begin), next)};
        }
      });
    }
    return ok_status();
  }

 private:
  static Status logits_of(engine::Session& session, std::span<const std::int32_t> tokens, std::vector<float>& logits) {
    logits.clear();
    return session.prefill(tokens, [&logits](std::int64_t, std::span<const float> piece) {
      logits.insert(logits.end(), piece.begin(), piece.end());
    });
  }
  std::span<const float> row(const std::vector<float>& logits, std::size_t i) const {
    return std::span(logits).subspan(i * a_.logits().size(), a_.logits().size());
  }

  engine::Session& a_;
  engine::Session& b_;
  ThreadPool pool_;
  std::vector<float> a_logits_, b_logits_;  // [piece, vocab_size]
};

}  // namespace

Result<std::vector<Window>> plan_windows(std::size_t n_tokens, const QualityOptions& options) {
  const int stride = options.stride > 0 ? options.stride : options.window;
  if (options.window < 2 || stride > options.window) {
    return Error{.message = "windows of this size or stride leave tokens out",
                 .found = fmt::format("window {}, stride {}", options.window, stride),
                 .expected = "a window of 2 or more, a stride of at most the window"};
  }
  if (n_tokens < 2) {
    return Error{
        .message = "the text is too short", .found = fmt::format("{} tokens", n_tokens), .expected = "2 or more"};
  }
  std::vector<Window> windows;
  for (std::size_t begin = 0, counted = 0; counted < n_tokens; begin += static_cast<std::size_t>(stride)) {
    const std::size_t end = std::min(begin + static_cast<std::size_t>(options.window), n_tokens);
    windows.push_back({begin, end, counted});
    counted = end;
  }
  return windows;
}

Result<std::vector<Text>> read_classes(std::span<const std::string> paths) {
  std::vector<Text> texts;
  texts.reserve(paths.size());
  for (const std::string& path : paths) {
    Text text;
    NIBBLE_ASSIGN(text.content, read_text(path));
    text.file = path.substr(path.rfind('/') + 1);
    text.name = text.file.substr(0, text.file.rfind('.'));
    text.sha256 = sha256_hex(std::as_bytes(std::span(text.content)));
    if (std::ranges::find(texts, text.name, &Text::name) != texts.end()) {
      return Error{.message = "two texts have the same name, which is that of their class",
                   .file = path,
                   .found = text.name,
                   .expected = "another file name"};
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

Result<Json> measure_perplexity(OpenSubject& subject, std::span<const Text> texts, const QualityOptions& options,
                                const QualityProgress& progress) {
  NIBBLE_ASSIGN(const auto session, make_session(subject, options));
  Json json = receipt_head("ppl", options);
  json["model"] = subject_facts(subject);
  json["classes"] = Json::object();
  Likelihood all;
  for (const Text& text : texts) {
    NIBBLE_ASSIGN(const auto tokens, tokens_of(subject, text, options));
    NIBBLE_ASSIGN(const auto windows, plan_windows(tokens.size(), options));
    Likelihood likelihood;
    for (const Window& window : windows) {
      session->clear();
      NIBBLE_TRY(
          session->prefill(fed_tokens(subject, tokens, window), [&](std::int64_t pos, std::span<const float> logits) {
            const std::size_t absolute = window.begin + static_cast<std::size_t>(pos);
            if (absolute < window.first_counted || absolute + 1 >= tokens.size()) return;
            const double nll = negative_log_likelihood(logits, tokens[absolute + 1]);
            likelihood.add(nll);
            all.add(nll);
          }));
      if (progress) progress(window.end, tokens.size());
    }
    json["classes"][text.name] = text_facts(text, tokens.size());
    json["classes"][text.name].update(likelihood.to_json());
  }
  json["all"] = all.to_json();
  NIBBLE_TRY(subject.loaded->file().check_unchanged());
  return json;
}

Result<Json> compare_quality(OpenSubject& a, OpenSubject& b, std::span<const Text> texts, const QualityOptions& options,
                             const QualityProgress& progress) {
  NIBBLE_TRY(check_vocabulary(b.subject.model, b.loaded->tokenizer, a.loaded->tokenizer.digest()));
  NIBBLE_ASSIGN(const auto a_session, make_session(a, options));
  NIBBLE_ASSIGN(const auto b_session, make_session(b, options));
  Comparer comparer(*a_session, *b_session);
  Json json = receipt_head("compare", options);
  json["a"] = subject_facts(a);
  json["b"] = subject_facts(b);
  json["classes"] = Json::object();
  std::vector<Counted> all;
  for (const Text& text : texts) {
    NIBBLE_ASSIGN(const auto tokens, tokens_of(a, text, options));
    NIBBLE_ASSIGN(const auto windows, plan_windows(tokens.size(), options));
    std::vector<Counted> counted;
    for (const Window& window : windows) {
      NIBBLE_TRY(comparer.window(tokens, fed_tokens(a, tokens, window), window, counted));
      if (progress) progress(window.end, tokens.size());
    }
    Json& entry = json["classes"][text.name] = text_facts(text, tokens.size());
    entry.update(summary_of(counted));
    entry["bands"] = bands_of(counted);
    all.insert(all.end(), counted.begin(), counted.end());
  }
  json["bands"] = bands_of(all);
  json["all"] = summary_of(all);
  NIBBLE_TRY(a.loaded->file().check_unchanged());
  NIBBLE_TRY(b.loaded->file().check_unchanged());
  return json;
}

bool apply_gates(std::span<const Gate> gates, Json& receipt) {
  bool all_passed = true;
  if (!gates.empty()) receipt["gates"] = Json::array();
  for (const Gate& gate : gates) {
    std::string where = "all";
    double worst = receipt["all"][gate.field].get<double>();
    for (const auto& [name, entry] : receipt["classes"].items()) {
      const double value = entry[gate.field].get<double>();
      if (gate.is_minimum ? value < worst : value > worst) {
        worst = value;
        where = name;
      }
    }
    const bool passed = gate.is_minimum ? worst >= gate.limit : worst <= gate.limit;  // a NaN passes nothing
    receipt["gates"].push_back({{"field", gate.field},
                                {gate.is_minimum ? "at_least" : "at_most", gate.limit},
                                {"worst", worst},
                                {"where", where},
                                {"passed", passed}});
    all_passed &= passed;
  }
  return all_passed;
}

}  // namespace nibble::measure
