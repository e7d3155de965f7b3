#include "cuda/launch.h"

#include <fmt/format.h>

namespace iso::cuda {

Expected<void> launch(const Driver& driver, const LoadedKernel& kernel, const LaunchShape& shape, Stream stream,
                      const void* params) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return {};
  const Instance& instance = *kernel.instance;
  const auto failed = [&](std::string error) {
    return raise(errors::LaunchFailed{.kernel = instance.symbol,
                                      .grid = fmt::format("{}x{}x{}", shape.grid_x, shape.grid_y, shape.grid_z),
                                      .threads = instance.threads,
                                      .shared_bytes = instance.shared_bytes,
                                      .error = std::move(error)});
  };
  if (shape.grid_x > INT32_MAX || shape.grid_y > UINT16_MAX || shape.grid_z > UINT16_MAX)
    return failed("the grid is larger than 2147483647 x 65535 x 65535");

  LaunchAttribute attributes[2] = {};
  LaunchConfig config{};
  config.attributes = attributes;
  if (shape.cluster_x > 1) {
    LaunchAttribute& cluster = attributes[config.num_attributes++];
    cluster.id = kClusterDimension;
    cluster.cluster = {static_cast<u32>(shape.cluster_x), 1, 1};
  }
  if (shape.overlaps_previous) {
    LaunchAttribute& overlap = attributes[config.num_attributes++];
    overlap.id = kProgrammaticStreamSerialization;
    overlap.flag = 1;
  }
  config.grid_x = static_cast<u32>(shape.grid_x);
  config.grid_y = static_cast<u32>(shape.grid_y);
  config.grid_z = static_cast<u32>(shape.grid_z);
  config.block_x = static_cast<u32>(instance.threads);
  config.block_y = config.block_z = 1;
  config.shared_bytes = static_cast<u32>(instance.shared_bytes);
  config.stream = stream;
  void* arguments[] = {const_cast<void*>(params)};
  const Result result = driver->launch_kernel(&config, reinterpret_cast<Function>(kernel.handle), arguments, nullptr);
  if (result != kSuccess) return failed(driver.error_text(result));
  return {};
}

}  // namespace iso::cuda
