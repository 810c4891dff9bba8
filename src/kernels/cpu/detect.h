// Which instruction sets this machine, this operating system and this build have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {

// Those that can be used here, the widest first; "scalar" is always the last.
std::vector<std::string_view> isa_names();
// The first of them.
std::string_view default_isa();

// Every instruction set that nibble knows, with the reason why it cannot be used here, or an empty string.
struct IsaState {
  std::string_view name;
  std::string_view needs;  // what the machine must have
  std::string unusable_because;
};
std::vector<IsaState> isa_states();

// The table of `isa`. "auto" or "": what NIBBLE_ISA names, otherwise the default. An absent one is an error, never
// another.
Result<const KernelTable*> select_isa(std::string_view isa);

}  // namespace nibble::kernels::cpu
