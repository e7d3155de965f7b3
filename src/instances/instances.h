// Which GPU kernels exist: the lines of common.inc, sm90.inc and sm100.inc as a table. Every line is compiled to a cubin
// (cmake/cubins.cmake), run by the emulator backend and listed by `isoflash list`.
//
//   ISO_KERNEL(folder, kernel, variant, (config arguments), threads, CTAs per SM, dynamic shared bytes)
//
// names src/kernels/<folder>/<kernel>.h, in it <kernel>::Config<config arguments> with its Params, and
// <kernel>::run<Config>(params). Threads and shared bytes repeat the Config's, which the compiler checks. The symbol is
// isoflash_<kernel>_<architecture>_<variant>.
#pragma once

#include <span>
#include <string_view>

#include "base/compile.h"

namespace iso {

// What kernels are compiled for: sm90 is nvcc's sm_90a (compute capability 9.0), sm100 the family sm_100f (10.x).
enum class Architecture : i32 { sm90, sm100 };
inline constexpr Architecture kArchitectures[] = {Architecture::sm90, Architecture::sm100};

const char* architecture_name(Architecture architecture);  // "sm90"
// The architecture whose kernels run on a device of this compute capability; nullptr if none do.
const Architecture* architecture_of(i32 major, i32 minor);

struct Instance {
  const char* symbol;
  Architecture architecture;
  const char *kernel, *variant;
  i32 threads, shared_bytes;
};

// In the order of the .inc files, architecture by architecture.
std::span<const Instance> instances();
// nullptr if there is none.
const Instance* find_instance(Architecture architecture, std::string_view kernel, std::string_view variant);

}  // namespace iso
