// The Machine that is the emulator: every instance of src/instances/common.inc, compiled for it.
#pragma once

#include <memory>
#include <vector>

#include "common_kernels/machine.h"
#include "emulator/launch.h"

namespace iso::test {

class EmulatorMachine final : public Machine {
 public:
  // What launches differ in: seed, mutations. Grid, threads and shared memory are the instance's.
  emu::LaunchConfig config;
  // Before each launch another one writes what was uploaded, as it stands: the grid before, which kernels must wait for.
  bool inputs_by_grid_before = false;

  void* upload(const void* data, std::size_t bytes, const std::string& name) override;
  void download(void* data, const void* from, std::size_t bytes) override;
  std::string run(const std::string& kernel, const std::string& variant, i64 grid, const void* params) override;
  void clear() override;

 private:
  struct alignas(256) Block {
    u8 bytes[256];
  };
  struct Input {
    u16* data;
    std::size_t elements;
  };
  std::string rewrite_inputs();

  std::vector<std::unique_ptr<Block[]>> blocks_;
  std::vector<Input> inputs_;
  std::unique_ptr<emu::GlobalMemory> memory_ = std::make_unique<emu::GlobalMemory>();
};

}  // namespace iso::test
