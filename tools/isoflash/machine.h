// What this machine is: for `isoflash doctor` and for the record of a benchmark.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace iso::tool {

struct Machine {
  std::string cpu_model;  // "unknown" if the system does not say
  int cores_online = 0;   // of the machine
  int cores_usable = 0;   // by this process
  std::int64_t memory_bytes = 0, memory_available_bytes = 0;
  std::string system;  // kernel name, release and architecture
};
Machine this_machine();

struct Gpu {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  std::int64_t memory_bytes = 0;
};
struct CudaDriver {
  int version = 0;      // CUDA version the driver supports, 1000 * major + 10 * minor
  std::string problem;  // why the driver lists no GPU, if it lists none
  std::vector<Gpu> gpus;
};
// Empty if there is no libcuda.so.1.
std::optional<CudaDriver> cuda_driver();

}  // namespace iso::tool
