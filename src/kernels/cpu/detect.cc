#include "kernels/cpu/detect.h"

#include <fmt/format.h>

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace nibble::kernels::cpu {
namespace {

#if defined(NIBBLE_HAVE_SIMD)
constexpr bool kHasSimd = true;
#else
constexpr bool kHasSimd = false;
#endif

// What nibble knows, the widest first.
struct Isa {
  std::string_view name;
  std::string_view needs;
};
constexpr Isa kIsas[] = {
    {"amx", "x86-64 with AVX-512 (F, BW, VL, DQ, VNNI) and AMX bf16 tiles, on a kernel that hands them out"},
    {"avx512", "x86-64 with AVX-512 F, BW, VL, DQ, VNNI"},
    {"avxvnni", "x86-64 with AVX2, FMA, F16C, AVX-VNNI"},
    {"avx2", "x86-64 with AVX2, FMA, F16C"},
    {"neoni8mm", "64-bit Arm with dot products and matrix products of bytes (FEAT_DotProd, FEAT_I8MM)"},
    {"neondot", "64-bit Arm with dot products of bytes (FEAT_DotProd)"},
    {"neon", "64-bit Arm"},
    {"scalar", "nothing"},
};

// What this architecture can have of them.
struct Candidate {
  std::string_view name;
  bool (*is_supported)();
  const KernelTable* table;  // null: not in this build
};

constexpr const KernelTable* if_built(const KernelTable& table) {
  return kHasSimd ? &table : nullptr;
}

bool always() {
  return true;
}

#if defined(__x86_64__)
bool has_avx2() {
  // F16C is not asked for: every CPU with AVX2 has it, and clang 14 does not know its name.
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avxvnni() {
  constexpr unsigned kAvxVnni = 1U << 4;  // of leaf 7.1, eax
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

// Linux hands out the registers on request, once per process; a kernel without that request does not save them.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
bool has_amx() {
  static const bool kHasAmx = [] {
    constexpr unsigned kOsXsave = 1U << 27, kBf16AndTile = 1U << 22 | 1U << 24, kTileState = 3U << 17;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!has_avx512() || __get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16AndTile) != kBf16AndTile) return false;
    unsigned enabled = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    return (enabled & kTileState) == kTileState && may_use_tiles();
  }();
  return kHasAmx;
}

constexpr Candidate kCandidates[] = {
    {"amx", has_amx, if_built(kAmxTable)},
    {"avx512", has_avx512, if_built(kAvx512Table)},
    {"avxvnni", has_avxvnni, if_built(kAvxVnniTable)},
    {"avx2", has_avx2, if_built(kAvx2Table)},
    {"scalar", always, &kScalarTable},
};

#elif defined(__aarch64__)
#if defined(__linux__)
bool has_neondot() {
  constexpr unsigned long kAsimdDp = 1UL << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kAsimdDp) != 0;
}
bool has_neoni8mm() {
  constexpr unsigned long kI8mm = 1UL << 13;  // HWCAP2_I8MM
  return has_neondot() && (getauxval(AT_HWCAP2) & kI8mm) != 0;
}
#else
bool has_neondot() {
  return false;
}
bool has_neoni8mm() {
  return false;
}
#endif

constexpr Candidate kCandidates[] = {
    {"neoni8mm", has_neoni8mm, if_built(kNeonI8mmTable)},
    {"neondot", has_neondot, if_built(kNeonDotTable)},
    {"neon", always, if_built(kNeonTable)},  // Advanced SIMD is part of the architecture's base
    {"scalar", always, &kScalarTable},
};

#else
constexpr Candidate kCandidates[] = {{"scalar", always, &kScalarTable}};
#endif

const Candidate* find_candidate(std::string_view name) {
  for (const Candidate& candidate : kCandidates) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

std::string why_unusable(const Isa& isa) {
  const Candidate* found = find_candidate(isa.name);
  if (found == nullptr || !found->is_supported()) return "this machine is not " + std::string(isa.needs);
  if (found->table == nullptr) return "it was left out of this build (NIBBLE_SIMD=OFF)";
  return "";
}

std::string joined_names() {
  std::string names;
  for (std::string_view name : isa_names()) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace

std::vector<std::string_view> isa_names() {
  std::vector<std::string_view> names;
  for (const Isa& isa : kIsas) {
    if (why_unusable(isa).empty()) names.push_back(isa.name);
  }
  return names;
}

std::string_view default_isa() {
  return isa_names().front();
}

std::vector<IsaState> isa_states() {
  std::vector<IsaState> states;
  for (const Isa& isa : kIsas) states.push_back({isa.name, isa.needs, why_unusable(isa)});
  return states;
}

Result<const KernelTable*> select_isa(std::string_view requested) {
  std::string name(requested);
  std::string_view asker;
  if (name.empty() || name == "auto") {
    const char* from_environment = std::getenv("NIBBLE_ISA");
    name = from_environment != nullptr ? from_environment : "auto";
    asker = "NIBBLE_ISA: ";
  }
  if (name.empty() || name == "auto") name = default_isa();
  for (const Isa& isa : kIsas) {
    if (isa.name != name) continue;
    const std::string reason = why_unusable(isa);
    if (reason.empty()) return find_candidate(name)->table;
    return Error{.message = fmt::format("{}instruction set '{}' cannot be used: {}", asker, name, reason),
                 .found = name,
                 .expected = "one of: " + joined_names(),
                 .hint = "leave it at 'auto' to get what suits this machine; the answers are the same"};
  }
  return Error{.message = fmt::format("{}unknown instruction set '{}'", asker, name),
               .found = name,
               .expected = "one of: auto, " + joined_names()};
}

}  // namespace nibble::kernels::cpu
