// Running a kernel in the emulator: what a launch needs, what it gives back.
//
//   emu::GlobalMemory memory;
//   memory.add(q.data(), bytes, "q", emu::Contents::initialised);
//   emu::LaunchConfig config{.grid = {2, 1, 1}, .threads = 384, .shared_bytes = sizeof(SharedStorage), .seed = 7};
//   const Expected<emu::LaunchStats> done = emu::launch(config, memory, [&] { kernel(params); });
//
// The function runs once per CUDA thread. A launch that breaks a rule ends with an error of the 8xxx range.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/global_memory.h"
#include "emulator/location.h"
#include "emulator/rules.h"
#include "errors/error.h"

namespace iso::emu {

struct Dim3 {
  u32 x = 1, y = 1, z = 1;
  u32 count() const { return x * y * z; }
  bool operator==(const Dim3&) const = default;
};

// A synchronisation call of the kernel: mutation tests list them and remove one at a time.
struct SyncSite {
  std::string instruction;
  Location at;
  bool operator==(const SyncSite&) const = default;
};

struct LaunchConfig {
  Dim3 grid{}, cluster{};
  u32 threads = 128;          // per CTA
  u32 shared_bytes = 0;       // dynamic shared memory per CTA
  u32 registers = 0;          // per thread at the start, for setmaxnreg; 0: as many as the launch bounds allow
  u64 seed = 1;               // of the order in which threads run and copies land
  u32 resident_ctas = 2;      // CTAs that run at the same time; at least one cluster always does
  bool programmatic = false;  // launched before the previous grid has completed: needs griddepcontrol.wait
  Rules rules{};
  std::vector<std::pair<u32, std::string>> barrier_names{};  // offset in shared memory, name: for reports

  std::vector<SyncSite>* record_sites = nullptr;  // filled with every synchronisation call that was executed
  const SyncSite* remove_site = nullptr;          // this call does nothing
};

struct LaunchStats {
  u64 switches = 0, wgmmas = 0, copies = 0, flops = 0;
};

Expected<LaunchStats> launch(const LaunchConfig& config, GlobalMemory& memory, const std::function<void()>& kernel);

}  // namespace iso::emu
