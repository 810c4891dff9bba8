#include "text/pretokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/out_of_memory.h"

namespace nibble::text {

// Source of the expressions: the tokenizer.json files of the families, and llama.cpp for "default". They are written
// for Oniguruma there. Its \s is White_Space; PCRE2's \s also holds U+180E, so kRules spells the class out (S below).
struct PretokenizerRule {
  std::vector<std::string_view> names;  // of tokenizer.ggml.pre; the first is the rule's own
  std::vector<std::string_view> patterns;
  bool ignore_merges = false;
  bool add_bos = false;
};

namespace {

#define S "\\t-\\r\\x{85}\\p{Z}"
#define CASELESS_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS_WITH_LEAD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS_TO_LINE_END " ?[^" S "\\p{L}\\p{N}]+[\\r\\n]*"
#define SPACES "[" S "]*[\\r\\n]+|[" S "]+(?![^" S "])|[" S "]+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" S "\\p{L}\\p{N}]+|[" S "]+(?![^" S "])|[" S "]+"
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"

const std::vector<PretokenizerRule>& rules() {
  static const auto* const kRules = new std::vector<PretokenizerRule>{
      {{"default"}, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
      {{"gpt-2", "phi-2", "olmo", "mpt", "jais", "exaone4"}, {GPT2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell"}, {"\\p{N}", GPT2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"},
       {CASELESS_CONTRACTIONS "|" LETTERS_WITH_LEAD "|\\p{N}{1,3}|" SYMBOLS_TO_LINE_END "|" SPACES},
       true,
       true},
      {{"qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"},
       {CASELESS_CONTRACTIONS "|" LETTERS_WITH_LEAD "|\\p{N}|" SYMBOLS_TO_LINE_END "|" SPACES}},
      {{"tekken"},
       {"[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER "]*|\\p{N}| ?[^" S
        "\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
       true,
       true},
  };
  return *kRules;
}

#undef S
#undef CASELESS_CONTRACTIONS
#undef LETTERS_WITH_LEAD
#undef SYMBOLS_TO_LINE_END
#undef SPACES
#undef GPT2
#undef UPPER
#undef LOWER

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

}  // namespace

// One compiled expression. The code is read-only after create(), so any number of threads may split at once.
class Pretokenizer::Pattern {
 public:
  explicit Pattern(std::string_view expression) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr));
    NIBBLE_CHECK(code_ != nullptr, "a built-in pre-tokenizer expression does not compile");
    // Without a just-in-time compiler for this machine the interpreter gives the same matches, slower.
    (void)pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  // Appends the matches and what lies between them.
  Status split(std::string_view text, std::vector<std::string_view>* pieces) const {
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
    const std::unique_ptr<pcre2_match_context, FreeMatch> context(pcre2_match_context_create(nullptr));
    if (match == nullptr || context == nullptr) throw OutOfMemory(0);
    pcre2_set_match_limit(context.get(), backtracking_limit(text.size()));
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match.get());
    const auto append = [&](std::size_t begin, std::size_t end) {
      if (begin < end) pieces->push_back(text.substr(begin, end - begin));
    };
    std::size_t done = 0;
    while (done < text.size()) {
      const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), done,
                                    PCRE2_NO_UTF_CHECK, match.get(), context.get());
      if (count == PCRE2_ERROR_NOMATCH) break;
      if (count < 0) return failure(count, text.size());
      NIBBLE_CHECK(bounds[1] > bounds[0], "a pre-tokenizer expression matched nothing");
      append(done, bounds[0]);
      append(bounds[0], bounds[1]);
      done = bounds[1];
    }
    append(done, text.size());
    return ok_status();
  }

 private:
  // Every expression backtracks at most a few times per character of one match, and a piece that needed many steps is
  // long: the limit is never reached by them. It stands so that a mistake in an expression is an error, not a hang.
  static std::uint32_t backtracking_limit(std::size_t size) {
    constexpr std::size_t kBase = 1'000'000, kPerByte = 16, kMax = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(std::min(kMax, kBase + kPerByte * size));
  }

  static Error failure(int code, std::size_t size) {
    std::array<PCRE2_UCHAR, 200> words{};
    pcre2_get_error_message(code, words.data(), words.size());
    return Error{.message = "the text cannot be split into words",
                 .found = fmt::format("{} bytes; PCRE2: {}", size, reinterpret_cast<const char*>(words.data())),
                 .hint = "pass the text in smaller parts"};
  }

  std::unique_ptr<pcre2_code, FreeMatch> code_;
};

Pretokenizer::Pretokenizer(const PretokenizerRule& rule) : rule_(&rule) {
  for (const std::string_view expression : rule.patterns) patterns_.emplace_back(expression);
}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::create(std::string_view name) {
  if (name.empty()) name = "default";
  std::vector<std::string_view> known;
  for (const PretokenizerRule& rule : rules()) {
    if (std::find(rule.names.begin(), rule.names.end(), name) != rule.names.end()) return Pretokenizer(rule);
    known.insert(known.end(), rule.names.begin(), rule.names.end());
  }
  return Error{.message = "unknown pre-tokenizer",
               .key = "tokenizer.ggml.pre",
               .found = std::string(name),
               .expected = fmt::format("one of {}", fmt::join(known, ", ")),
               .hint = "the model's text would be cut differently from what it was trained on"};
}

Status Pretokenizer::split(std::string_view text, std::vector<std::string_view>* pieces) const {
  std::vector<std::string_view> before{text}, after;
  for (const Pattern& pattern : patterns_) {
    after.clear();
    for (const std::string_view piece : before) NIBBLE_TRY(pattern.split(piece, &after));
    std::swap(before, after);
  }
  pieces->insert(pieces->end(), before.begin(), before.end());
  return ok_status();
}

bool Pretokenizer::ignore_merges() const {
  return rule_->ignore_merges;
}
bool Pretokenizer::default_add_bos() const {
  return rule_->add_bos;
}

}  // namespace nibble::text
