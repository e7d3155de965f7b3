#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "cpu/processor.h"

namespace iso::cpu {
namespace {

// AMX with bf16, and the kernel's leave to use its tile registers (asked for once per process; Linux 5.16 and later).
bool amx_granted() {
  static const bool granted = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // CPUID leaf 7, EDX
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return granted;
}

}  // namespace

bool processor_runs(const char* level) {
  const std::string_view name = level;
  if (name == "scalar") return true;
  const bool baseline = __builtin_cpu_supports("sse4.2");
  if (name == "baseline") return baseline;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (name == "avx2") return avx2;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (name == "avx512") return avx512;
  if (name == "avx512_bf16") return avx512 && __builtin_cpu_supports("avx512bf16");
  if (name == "amx") return avx512 && __builtin_cpu_supports("avx512bf16") && amx_granted();
  return false;
}

}  // namespace iso::cpu
