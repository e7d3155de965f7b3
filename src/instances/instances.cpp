#include "instances/instances.h"

#include "instances/cubins.h"

namespace iso {
namespace {

#define ISO_INSTANCE(architecture, kernel, variant, threads, shared_bytes) \
  {"isoflash_" #kernel "_" #architecture "_" #variant,                     \
   Architecture::architecture,                                             \
   #kernel,                                                                \
   #variant,                                                               \
   threads,                                                                \
   shared_bytes},

constexpr Instance kInstances[] = {
#define ISO_KERNEL(folder, kernel, variant, config, threads, ctas, shared_bytes) \
  ISO_INSTANCE(sm90, kernel, variant, threads, shared_bytes)
#include "instances/common.inc"
#include "instances/sm90.inc"
#undef ISO_KERNEL
#define ISO_KERNEL(folder, kernel, variant, config, threads, ctas, shared_bytes) \
  ISO_INSTANCE(sm100, kernel, variant, threads, shared_bytes)
#include "instances/common.inc"
#include "instances/sm100.inc"
#undef ISO_KERNEL
};

#undef ISO_INSTANCE

}  // namespace

const char* architecture_name(Architecture architecture) { return architecture == Architecture::sm90 ? "sm90" : "sm100"; }

const Architecture* architecture_of(i32 major, i32 minor) {
  if (major == 9 && minor == 0) return &kArchitectures[0];
  if (major == 10) return &kArchitectures[1];
  return nullptr;
}

std::span<const Instance> instances() { return kInstances; }

const Instance* find_instance(Architecture architecture, std::string_view kernel, std::string_view variant) {
  for (const Instance& instance : kInstances)
    if (instance.architecture == architecture && instance.kernel == kernel && instance.variant == variant) return &instance;
  return nullptr;
}

const Cubin* find_cubin(std::string_view symbol) {
  for (const Cubin& cubin : embedded_cubins())
    if (cubin.symbol == symbol) return &cubin;
  return nullptr;
}

}  // namespace iso
