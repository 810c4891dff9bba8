#include "io/gguf_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/printable.h"

namespace nibble {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, which needs a little-endian machine");

constexpr std::uint64_t kMinEntryBytes = 12;   // key length, value type
constexpr std::uint64_t kMinTensorBytes = 24;  // name length, rank, type, offset
constexpr std::uint64_t kMinAlignment = 8;     // the format's own rule; every element type can then be read in place

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes) { part_.path = path; }

  Result<GgufPart> parse() {
    std::uint64_t n_tensors = 0;
    std::uint64_t n_entries = 0;
    NIBBLE_TRY(parse_header(&n_tensors, &n_entries));
    NIBBLE_TRY(parse_metadata(n_entries));
    NIBBLE_TRY(find_alignment());
    NIBBLE_TRY(parse_tensors(n_tensors));
    part_.bytes = bytes_;
    return std::move(part_);
  }

 private:
  Error fault(std::string message, std::string_view tensor = {}) const {
    return Error{.message = std::move(message), .file = part_.path, .tensor = printable(tensor)};
  }
  Error key_fault(std::string message, std::string_view key) const {
    return Error{.message = std::move(message), .file = part_.path, .key = printable(key)};
  }

  Error truncated(std::string_view what, std::uint64_t need, std::string_view key) const {
    Error error = key_fault(fmt::format("the file ends inside {}", what), key);
    error.found = fmt::format("{} bytes left at offset {} of {}", bytes_.size() - at_, at_, bytes_.size());
    error.expected = fmt::format("{} bytes", need);
    error.hint = "the file is cut off or damaged; fetch or write it again";
    return error;
  }

  // `what` and `key` are words for the Error; none are made before something is wrong.
  Status require(std::uint64_t need, std::string_view what, std::string_view key = {}) const {
    if (need > bytes_.size() - at_) return truncated(what, need, key);
    return ok_status();
  }

  template <typename T>
  Status read(T* value, std::string_view what, std::string_view key = {}) {
    NIBBLE_TRY(require(sizeof(T), what, key));
    std::memcpy(value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return ok_status();
  }

  // A length-prefixed name: non-empty and of bounded length.
  Status read_name(std::string_view* name, std::string_view what) {
    std::uint64_t length = 0;
    NIBBLE_TRY(read(&length, what));
    if (length == 0 || length > kGgufMaxNameBytes) {
      Error error = fault(fmt::format("{} has an impossible length", what));
      error.found = fmt::format("{} bytes at offset {}", length, at_ - 8);
      error.expected = fmt::format("1 to {} bytes", kGgufMaxNameBytes);
      return error;
    }
    NIBBLE_TRY(require(length, what));
    *name = {reinterpret_cast<const char*>(bytes_.data()) + at_, length};
    at_ += length;
    return ok_status();
  }

  Status parse_header(std::uint64_t* n_tensors, std::uint64_t* n_entries);
  Error not_gguf() const;
  Status check_version() const;
  Status check_count(std::uint64_t count, std::uint64_t limit, std::uint64_t min_bytes, std::string_view what) const;

  Status parse_metadata(std::uint64_t n_entries);
  Status skip_value(GgufType type, std::string_view key, int depth);
  Status skip_string(std::string_view key);
  Status skip_array(std::string_view key, int depth);
  Status read_type(GgufType* type, std::string_view key);
  Status check_bools(std::uint64_t count, std::string_view key) const;
  Status find_alignment();

  Status parse_tensors(std::uint64_t n_tensors);
  Status parse_tensor_record(TensorView* tensor, std::uint64_t* offset, std::uint64_t* n_bytes);
  Status parse_shape(std::string_view name, Shape* shape);
  Status place_tensors(const std::vector<std::uint64_t>& offsets, const std::vector<std::uint64_t>& sizes);
  Status check_unique_names() const;

  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  GgufPart part_;
};

Status Parser::parse_header(std::uint64_t* n_tensors, std::uint64_t* n_entries) {
  std::uint32_t magic = 0;
  NIBBLE_TRY(read(&magic, "the magic number"));
  if (magic != 0x46554747U) return not_gguf();
  NIBBLE_TRY(read(&part_.version, "the version"));
  NIBBLE_TRY(check_version());
  NIBBLE_TRY(read(n_tensors, "the tensor count"));
  NIBBLE_TRY(read(n_entries, "the metadata count"));
  NIBBLE_TRY(check_count(*n_entries, kGgufMaxEntries, kMinEntryBytes, "metadata entries"));
  NIBBLE_TRY(check_count(*n_tensors, kGgufMaxTensors, kMinTensorBytes, "tensors"));
  return ok_status();
}

// Names what the file is instead, for the mistakes that people make.
Error Parser::not_gguf() const {
  const std::string_view head(reinterpret_cast<const char*>(bytes_.data()), std::min<std::size_t>(bytes_.size(), 64));
  Error error = fault(fmt::format("{} is not a GGUF file", printable(part_.path)));
  error.found = fmt::format("a file that starts with \"{}\"", printable(head.substr(0, 8)));
  error.expected = "the four bytes \"GGUF\"";
  if (head.starts_with("FUGG")) {
    error.message = fmt::format("{} is a big-endian GGUF file", printable(part_.path));
    error.hint = "convert it to little endian, for example with the script gguf-convert-endian of the gguf package";
  } else if (head.starts_with("version https://git-lfs")) {
    error.hint = "this is a Git LFS pointer, not the model: run git lfs pull";
  } else if (head.starts_with("<")) {
    error.hint = "this is a web page: the download went to a page about the file instead of the file";
  } else if (head.starts_with("PK\x03\x04")) {
    error.hint = "this is a zip archive (a Python wheel, perhaps): unpack it first";
  } else if (head.starts_with("lmgg") || head.starts_with("fmgg") || head.starts_with("tjgg")) {
    error.hint = "this is a llama.cpp file of before August 2023: convert the original model again";
  }
  return error;
}

Status Parser::check_version() const {
  const std::uint32_t version = part_.version;
  if (version == 2 || version == 3) return ok_status();
  Error error = fault(fmt::format("GGUF version {} is not supported", version));
  error.found = fmt::format("version {}", version);
  error.expected = "version 2 or 3";
  if (version != 0 && (version & 0xFFFF) == 0) {
    error.message = "this GGUF file is big-endian";
    error.found = fmt::format("version bytes of {:#010x}", version);
    error.hint = "convert it to little endian, for example with the script gguf-convert-endian of the gguf package";
  }
  return error;
}

Status Parser::check_count(std::uint64_t count, std::uint64_t limit, std::uint64_t min_bytes,
                           std::string_view what) const {
  const std::uint64_t room = (bytes_.size() - at_) / min_bytes;
  if (count <= limit && count <= room) return ok_status();
  Error error = fault(fmt::format("the header announces an impossible number of {}", what));
  error.found = fmt::format("{}", count);
  error.expected = count > limit ? fmt::format("at most {}", limit)
                                 : fmt::format("at most {}, all that the rest of the file can hold", room);
  error.hint = "the file is cut off or damaged; fetch or write it again";
  return error;
}

Status Parser::parse_metadata(std::uint64_t n_entries) {
  part_.metadata.reserve(n_entries);
  for (std::uint64_t i = 0; i < n_entries; ++i) {
    std::string_view key;
    NIBBLE_TRY(read_name(&key, "a metadata key"));
    GgufType type{};
    NIBBLE_TRY(read_type(&type, key));
    const std::uint64_t begin = at_;
    NIBBLE_TRY(skip_value(type, key, 0));
    part_.metadata.push_back({key, GgufValue(type, bytes_.subspan(begin, at_ - begin))});
  }
  std::vector<std::string_view> keys;
  keys.reserve(n_entries);
  for (const GgufEntry& entry : part_.metadata) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) return key_fault("a metadata key stands twice in the file", *twice);
  return ok_status();
}

Status Parser::read_type(GgufType* type, std::string_view key) {
  std::uint32_t id = 0;
  NIBBLE_TRY(read(&id, "the type of a metadata value", key));
  if (id > static_cast<std::uint32_t>(GgufType::kF64)) {
    Error error = key_fault("a metadata value has an unknown type", key);
    error.found = fmt::format("type {}", id);
    error.expected = "a type from 0 to 12";
    return error;
  }
  *type = static_cast<GgufType>(id);
  return ok_status();
}

Status Parser::skip_value(GgufType type, std::string_view key, int depth) {
  if (type == GgufType::kString) return skip_string(key);
  if (type == GgufType::kArray) return skip_array(key, depth);
  NIBBLE_TRY(require(gguf_scalar_bytes(type), "a metadata value", key));
  if (type == GgufType::kBool) NIBBLE_TRY(check_bools(1, key));
  at_ += gguf_scalar_bytes(type);
  return ok_status();
}

Status Parser::skip_string(std::string_view key) {
  std::uint64_t length = 0;
  NIBBLE_TRY(read(&length, "the length of a metadata string", key));
  NIBBLE_TRY(require(length, "a metadata string", key));
  at_ += length;
  return ok_status();
}

Status Parser::skip_array(std::string_view key, int depth) {
  if (depth == kGgufMaxNesting) {
    return key_fault(fmt::format("a metadata value nests arrays deeper than {}", kGgufMaxNesting), key);
  }
  GgufType element{};
  NIBBLE_TRY(read_type(&element, key));
  std::uint64_t count = 0;
  NIBBLE_TRY(read(&count, "the length of a metadata array", key));
  const std::uint64_t scalar = gguf_scalar_bytes(element);
  const std::uint64_t least = scalar != 0 ? scalar : element == GgufType::kString ? 8 : 12;
  if (count > (bytes_.size() - at_) / least) {
    Error error = key_fault("a metadata array is longer than the file", key);
    error.found = fmt::format("{} elements of type {}", count, gguf_type_name(element));
    error.expected = fmt::format("at most {}, all that the rest of the file can hold", (bytes_.size() - at_) / least);
    error.hint = "the file is cut off or damaged; fetch or write it again";
    return error;
  }
  if (element == GgufType::kBool) NIBBLE_TRY(check_bools(count, key));
  if (scalar != 0) {
    at_ += scalar * count;
    return ok_status();
  }
  for (std::uint64_t i = 0; i < count; ++i) NIBBLE_TRY(skip_value(element, key, depth + 1));
  return ok_status();
}

Status Parser::check_bools(std::uint64_t count, std::string_view key) const {
  for (const std::byte byte : bytes_.subspan(at_, count)) {
    if (std::to_integer<unsigned>(byte) <= 1) continue;
    Error error = key_fault("a metadata bool is neither 0 nor 1", key);
    error.found = fmt::format("{}", std::to_integer<unsigned>(byte));
    return error;
  }
  return ok_status();
}

Status Parser::find_alignment() {
  part_.alignment = kGgufDefaultAlignment;
  const GgufValue* value = part_.find_value("general.alignment");
  if (value == nullptr) return ok_status();
  const std::optional<std::uint64_t> alignment = value->as_uint();
  if (value->type() != GgufType::kU32 || !std::has_single_bit(*alignment) || *alignment < kMinAlignment) {
    Error error = key_fault("the alignment of the tensor data is not usable", "general.alignment");
    error.found = fmt::format("{} {}", value->type_text(), alignment ? std::to_string(*alignment) : "");
    error.expected = "a U32 that is a power of two and a multiple of 8";
    return error;
  }
  part_.alignment = *alignment;
  return ok_status();
}

Status Parser::parse_tensors(std::uint64_t n_tensors) {
  std::vector<std::uint64_t> offsets(n_tensors);
  std::vector<std::uint64_t> sizes(n_tensors);
  part_.tensors.resize(n_tensors);
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    NIBBLE_TRY(parse_tensor_record(&part_.tensors[i], &offsets[i], &sizes[i]));
  }
  NIBBLE_TRY(check_unique_names());
  return place_tensors(offsets, sizes);
}

Status Parser::parse_tensor_record(TensorView* tensor, std::uint64_t* offset, std::uint64_t* n_bytes) {
  NIBBLE_TRY(read_name(&tensor->name, "a tensor name"));
  NIBBLE_TRY(parse_shape(tensor->name, &tensor->shape));
  std::uint32_t id = 0;
  NIBBLE_TRY(read(&id, "a tensor type"));
  NIBBLE_TRY(read(offset, "a tensor offset"));
  const DTypeInfo* info = find_dtype(id);
  if (info == nullptr) {
    Error error =
        fault(fmt::format("tensor {} has a type that nibble does not know", printable(tensor->name)), tensor->name);
    error.found = fmt::format("type {}", id);
    error.hint = "a newer nibble may read it; otherwise convert the model to another type";
    return error;
  }
  tensor->dtype = info->dtype;
  const std::optional<std::uint64_t> size = checked_bytes(info->dtype, tensor->shape);
  if (!size) {
    Error error = fault(fmt::format("tensor {} has an impossible shape", printable(tensor->name)), tensor->name);
    error.found = fmt::format("{} of {}", tensor->shape.to_string(), info->name);
    error.expected = fmt::format("a first dimension that is a multiple of {}, and fewer than 2^63 elements and bytes",
                                 info->block_size);
    return error;
  }
  *n_bytes = *size;
  return ok_status();
}

Status Parser::parse_shape(std::string_view name, Shape* shape) {
  std::uint32_t rank = 0;
  NIBBLE_TRY(read(&rank, "a tensor's number of dimensions"));
  if (rank > Shape::kMaxRank) {
    Error error = fault(fmt::format("tensor {} has too many dimensions", printable(name)), name);
    error.found = fmt::format("{}", rank);
    error.expected = fmt::format("at most {}", Shape::kMaxRank);
    return error;
  }
  for (std::uint32_t i = 0; i < rank; ++i) {
    std::uint64_t dim = 0;
    NIBBLE_TRY(read(&dim, "a tensor's dimensions"));
    if (dim == 0) return fault(fmt::format("tensor {} has a dimension of 0", printable(name)), name);
    shape->append(dim);
  }
  return ok_status();
}

Status Parser::check_unique_names() const {
  std::vector<std::string_view> names;
  names.reserve(part_.tensors.size());
  for (const TensorView& tensor : part_.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return ok_status();
  return fault(fmt::format("two tensors are called {}", printable(*twice)), *twice);
}

// Offsets count from the first aligned position after the records. They must be aligned, inside the file, and disjoint.
Status Parser::place_tensors(const std::vector<std::uint64_t>& offsets, const std::vector<std::uint64_t>& sizes) {
  const std::uint64_t data_begin = (at_ + part_.alignment - 1) / part_.alignment * part_.alignment;
  const std::uint64_t room = bytes_.size() > data_begin ? bytes_.size() - data_begin : 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    TensorView& tensor = part_.tensors[i];
    if (offsets[i] % part_.alignment != 0) {
      Error error = fault(fmt::format("the data of tensor {} is not aligned", printable(tensor.name)), tensor.name);
      error.found = fmt::format("offset {}", offsets[i]);
      error.expected = fmt::format("a multiple of {}", part_.alignment);
      return error;
    }
    if (offsets[i] > room || sizes[i] > room - offsets[i]) {
      Error error = fault(fmt::format("the data of tensor {} runs past the end of the file", printable(tensor.name)),
                          tensor.name);
      error.found = fmt::format("{} bytes of tensor data in the file", room);
      error.expected = fmt::format("{} bytes at offset {}", sizes[i], offsets[i]);
      error.hint = "the file is cut off or damaged; fetch or write it again";
      return error;
    }
    tensor.bytes = bytes_.subspan(data_begin + offsets[i], sizes[i]);
  }
  std::vector<std::uint32_t> order(offsets.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return offsets[a] < offsets[b]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::uint32_t before = order[i - 1];
    const std::uint32_t after = order[i];
    if (offsets[after] - offsets[before] >= sizes[before]) continue;
    Error error = fault(fmt::format("the data of tensors {} and {} overlap", printable(part_.tensors[before].name),
                                    printable(part_.tensors[after].name)),
                        part_.tensors[after].name);
    error.found = fmt::format("offset {}", offsets[after]);
    error.expected = fmt::format("{} or more", offsets[before] + sizes[before]);
    return error;
  }
  return ok_status();
}

}  // namespace

const GgufValue* GgufPart::find_value(std::string_view key) const {
  for (const GgufEntry& entry : metadata) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

Result<GgufPart> parse_gguf_part(std::span<const std::byte> bytes, const std::string& path) {
  return Parser(bytes, path).parse();
}

}  // namespace nibble
