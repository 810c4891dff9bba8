#include "quantize/quantize_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "io/lane.h"
#include "io/nvfp4_container.h"
#include "quantize/convert_tensor.h"

namespace nibble {
namespace {

constexpr std::string_view kFileTypeKey = "general.file_type";
constexpr std::uint32_t kFileTypeF16 = 1;  // informational: of the tensors that are not NVFP4

Status report(const QuantizeOptions& options, const QuantizeProgress& progress) {
  if (!options.progress || options.progress(progress)) return ok_status();
  return Error{.message = "stopped on request; no file was written"};
}

// The destination may be an older output, never a part of the source.
Status check_destination(const GgufFile& source, const std::string& destination) {
  std::vector<std::string> inputs;
  for (const GgufPart& part : source.parts()) inputs.push_back(part.path);
  return AtomicFile::check(destination, inputs);
}

// SHA-256 of the source's bytes; of a split model, of its parts one after the other.
Result<std::string> hash_source(const GgufFile& source, const QuantizeOptions& options) {
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  Sha256 hash;
  std::uint64_t done = 0;
  for (const GgufPart& part : source.parts()) {
    for (std::size_t at = 0; at < part.bytes.size(); at += kPiece) {
      const std::span<const std::byte> piece = part.bytes.subspan(at, std::min(kPiece, part.bytes.size() - at));
      hash.update(piece);
      release_pages(piece);
      done += piece.size();
      NIBBLE_TRY(report(options, {.phase = "hashing", .tensor = {}, .done = done, .total = source.file_bytes()}));
    }
  }
  return to_hex(hash.finish());
}

// Keys that describe the source's container or quantization and would be wrong in the output; of a mixed file that of
// ggml's block formats is right.
bool is_dropped(std::string_view key, Contract contract) {
  if (key == "general.quantization_version") return contract != Contract::kNk1;
  for (const std::string_view prefix : {"quantize.", "split.", "muser.", "nibble."}) {
    if (key.starts_with(prefix)) return true;
  }
  return key == kFileTypeKey || key == "general.alignment";
}

// The tables of a mixed file are not of nc1.
Contract contract_of(const std::vector<TensorPlan>& plans) {
  const bool is_mixed = std::ranges::any_of(plans, [](const TensorPlan& plan) { return needs_nk1(plan.dtype); });
  return is_mixed ? Contract::kNk1 : Contract::kNc1;
}

void add_metadata(const GgufFile& source, const std::string& sha256, Contract contract, Recipe recipe,
                  GgufWriter& writer) {
  for (const GgufEntry& entry : source.metadata()) {
    if (!is_dropped(entry.key, contract)) writer.add_value(entry.key, entry.value);
  }
  writer.add_u32(kFileTypeKey, kFileTypeF16);
  writer.add_string(kWeightPrecisionKey, "nvfp4");
  writer.add_string(kActivationPrecisionKey, "f16");
  writer.add_string(kSchemaKey, kSchema);
  writer.add_string(kArtifactSha256Key, sha256);
  writer.add_string(kContractKey, contract_name(contract));
  writer.add_string(kRecipeKey, recipe_name(recipe));
  writer.add_string(kSourceSha256Key, sha256);
}

}  // namespace

Result<QuantizeSummary> quantize_model(const std::string& source_path, const std::string& destination,
                                       const QuantizeOptions& options, ThreadPool& pool) {
  NIBBLE_ASSIGN(const GgufFile source, GgufFile::open(source_path));
  NIBBLE_TRY(check_destination(source, destination));
  NIBBLE_ASSIGN(const std::vector<TensorPlan> plans, plan_tensors(source, options.head, options.attention));

  QuantizeSummary summary;
  summary.source_bytes = source.file_bytes();
  NIBBLE_ASSIGN(summary.source_sha256, hash_source(source, options));

  GgufWriter writer;
  add_metadata(source, summary.source_sha256, contract_of(plans), options.recipe, writer);
  std::uint64_t total = 0;
  for (const TensorPlan& plan : plans) {
    declare_tensor(plan, writer);
    total += plan.source.bytes.size();
  }
  NIBBLE_TRY(writer.begin(destination));
  std::uint64_t done = 0;
  for (const TensorPlan& plan : plans) {
    const auto inside = [&](std::uint64_t bytes) {
      return report(options, {.phase = "quantizing", .tensor = plan.name, .done = done + bytes, .total = total});
    };
    NIBBLE_TRY(inside(0));
    NIBBLE_ASSIGN(TensorSummary tensor, append_tensor(source, plan, options.recipe, writer, pool, inside));
    summary.tensors.push_back(std::move(tensor));
    done += plan.source.bytes.size();
  }
  NIBBLE_TRY(report(options, {.phase = "quantizing", .tensor = {}, .done = done, .total = total}));
  NIBBLE_TRY(writer.finish());
  summary.output_bytes = writer.total_bytes();
  return summary;
}

}  // namespace nibble
