#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

#include "base/utf8.h"

namespace nibble::text {
namespace {

// Bytes that are printable in Latin-1 stand for themselves; the other 68, in order, for U+0100 and on. The soft hyphen
// U+00AD is invisible and so among the others. Source: GPT-2's encoder.
bool stands_for_itself(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteAlphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};  // -1: this character stands for no byte
  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (std::uint32_t b = 0; b < 256; ++b) {
      character[b] = stands_for_itself(b) ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet kAlphabet;
  return kAlphabet;
}

Error bad_merge(std::size_t rank, const std::string& merge, std::string_view problem) {
  return Error{.message = fmt::format("merge {} {}", rank, problem),
               .key = "tokenizer.ggml.merges",
               .found = quoted(merge),
               .expected = "\"left right\", where left, right and both joined are tokens"};
}

}  // namespace

std::string bytes_of_token(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t i = 0; i < token.size();) {
    const std::size_t length = next_utf8(token.substr(i)).length;
    const char32_t character = decode_utf8(token.substr(i, length));
    if (character >= alphabet().byte.size() || alphabet().byte[character] < 0) return std::string(token);
    bytes.push_back(static_cast<char>(alphabet().byte[character]));
    i += length;
  }
  return bytes;
}

std::string character_of_byte(std::uint8_t byte) {
  std::string character;
  append_utf8(alphabet().character[byte], &character);
  return character;
}

Result<MergeTable> MergeTable::create(const Vocabulary& vocabulary, const TokenIndex& index) {
  struct Row {
    std::int32_t left;
    Merge merge;
  };
  std::vector<Row> rows;
  rows.reserve(vocabulary.merges.size());
  std::string joined;
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string& text = vocabulary.merges[rank];
    const std::size_t space = text.find(' ', 1);
    if (space == std::string::npos) return bad_merge(rank, text, "has no space");
    const std::string_view left(text.data(), space), right = std::string_view(text).substr(space + 1);
    joined.assign(left).append(right);
    const auto l = index.find(left), r = index.find(right), m = index.find(joined);
    if (l == index.end() || r == index.end() || m == index.end())
      return bad_merge(rank, text, "names an unknown token");
    if (vocabulary.type(m->second) == TokenType::kControl) return bad_merge(rank, text, "makes a control token");
    rows.push_back({l->second, {r->second, static_cast<std::int32_t>(rank), m->second}});
  }
  const auto key = [](const Row& row) { return std::pair(row.left, row.merge.right); };
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
  const auto twice = std::adjacent_find(rows.begin(), rows.end(), [&](auto& a, auto& b) { return key(a) == key(b); });
  if (twice != rows.end()) {
    const auto rank = static_cast<std::size_t>(std::max(twice[0].merge.rank, twice[1].merge.rank));
    return bad_merge(rank, vocabulary.merges[rank], "is listed twice");
  }
  MergeTable table;
  table.row_begin_.assign(vocabulary.tokens.size() + 1, 0);
  for (const Row& row : rows) {
    ++table.row_begin_[static_cast<std::size_t>(row.left) + 1];
    table.merges_.push_back(row.merge);
  }
  std::partial_sum(table.row_begin_.begin(), table.row_begin_.end(), table.row_begin_.begin());
  return table;
}

const MergeTable::Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const Merge* const begin = merges_.data() + row_begin_[static_cast<std::size_t>(left)];
  const Merge* const end = merges_.data() + row_begin_[static_cast<std::size_t>(left) + 1];
  const Merge* const merge =
      std::lower_bound(begin, end, right, [](const Merge& m, std::int32_t value) { return m.right < value; });
  return merge != end && merge->right == right ? merge : nullptr;
}

// The symbols of one piece, as a doubly linked list in an array, and the merges that are possible between neighbours.
struct BpeEncoder::Scratch {
  struct Symbol {
    std::int32_t id, previous, next;  // id -1: taken up by its left neighbour; next -1: the last
  };
  struct Candidate {
    std::int32_t rank, position, left, right, merged;
    // The best merge first; of two places for it, the leftmost.
    bool operator<(const Candidate& other) const {
      return std::pair(rank, position) > std::pair(other.rank, other.position);
    }
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

Result<std::unique_ptr<const Encoder>> BpeEncoder::create(const Vocabulary& vocabulary, const TokenIndex& index,
                                                          const std::vector<std::string>& pieces,
                                                          Pretokenizer pretokenizer) {
  if (vocabulary.merges.empty()) {
    return Error{.message = "a byte-level BPE vocabulary without merges", .key = "tokenizer.ggml.merges"};
  }
  NIBBLE_ASSIGN(MergeTable merges, MergeTable::create(vocabulary, index));
  std::unique_ptr<BpeEncoder> encoder(new BpeEncoder(std::move(pretokenizer), std::move(merges)));
  const auto is_text = [&](std::int32_t id) {
    const TokenType type = vocabulary.type(id);
    return type != TokenType::kControl && type != TokenType::kUnknown;
  };
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const auto found = index.find(character_of_byte(static_cast<std::uint8_t>(byte)));
    encoder->byte_ids_[byte] = found != index.end() && is_text(found->second) ? found->second : -1;
  }
  if (encoder->pretokenizer_.ignore_merges()) {
    encoder->whole_pieces_.reserve(pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      const bool ordinary = is_text(id) && vocabulary.type(id) != TokenType::kUserDefined;
      if (ordinary && !pieces[i].empty()) encoder->whole_pieces_.emplace(pieces[i], id);
    }
  }
  return std::unique_ptr<const Encoder>(std::move(encoder));
}

Status BpeEncoder::encode(const Fragment& fragment, std::vector<std::int32_t>* ids) const {
  std::vector<std::string_view> pieces;
  NIBBLE_TRY(pretokenizer_.split(fragment.text, &pieces));
  Scratch scratch;
  for (const std::string_view piece : pieces) {
    if (!whole_pieces_.empty()) {
      if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
        ids->push_back(whole->second);
        continue;
      }
    }
    NIBBLE_TRY(load_bytes(fragment, piece, &scratch));
    if (scratch.symbols.empty()) continue;
    merge(&scratch);
    for (std::int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<std::size_t>(i)].next) {
      ids->push_back(scratch.symbols[static_cast<std::size_t>(i)].id);
    }
  }
  return ok_status();
}

Status BpeEncoder::load_bytes(const Fragment& fragment, std::string_view piece, Scratch* scratch) const {
  scratch->symbols.clear();
  for (const char& c : piece) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte_ids_[byte] < 0) {
      if (fragment.drop_unencodable) continue;
      const auto offset = fragment.offset + static_cast<std::size_t>(&c - fragment.text.data());
      return Error{.message = "the vocabulary cannot express this text",
                   .found = fmt::format("byte 0x{:02X} at offset {}, for which there is no token", byte, offset),
                   .hint = "remove the character from the text, or ask for such bytes to be dropped"};
    }
    const auto position = static_cast<std::int32_t>(scratch->symbols.size());
    scratch->symbols.push_back({byte_ids_[byte], position - 1, position + 1});
  }
  if (!scratch->symbols.empty()) scratch->symbols.back().next = -1;
  return ok_status();
}

// O(n log n): each of the at most n - 1 joins makes at most two new candidates. A candidate whose symbols have changed
// since it was made is recognised by their ids and skipped.
void BpeEncoder::merge(Scratch* scratch) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const auto symbol = [&](std::int32_t i) -> Scratch::Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto candidate = [&](std::int32_t position, std::vector<Scratch::Candidate>* to) {
    if (position < 0 || symbol(position).next < 0) return false;
    const std::int32_t left = symbol(position).id, right = symbol(symbol(position).next).id;
    const MergeTable::Merge* const merge = merges_.find(left, right);
    if (merge != nullptr) to->push_back({merge->rank, position, left, right, merge->merged});
    return merge != nullptr;
  };
  heap.clear();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) candidate(i, &heap);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbol(best.position);
    if (left.id != best.left || left.next < 0 || symbol(left.next).id != best.right) continue;
    Scratch::Symbol& right = symbol(left.next);
    left.id = best.merged;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.position;
    if (candidate(left.previous, &heap)) std::push_heap(heap.begin(), heap.end());
    if (candidate(best.position, &heap)) std::push_heap(heap.begin(), heap.end());
  }
}

}  // namespace nibble::text
