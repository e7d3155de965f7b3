#include "common_kernels/emulator_machine.h"

#include <cstring>

#include "kernels/common/bwd_preprocess.h"
#include "kernels/common/dq_convert.h"
#include "kernels/common/split_combine.h"

namespace iso::test {
namespace {

struct Entry {
  const char *kernel, *variant;
  u32 threads, shared_bytes;
  void (*run)(const void* params);
};

#define ISO_ARGUMENTS(...) __VA_ARGS__
#define ISO_KERNEL(folder, kernel, variant, config, threads, ctas, shared)         \
  {#kernel, #variant, threads, shared, [](const void* params) {                    \
     using Config = kernel::Config<ISO_ARGUMENTS config>;                          \
     static_assert(Config::kThreads == threads && Config::kSharedBytes == shared); \
     kernel::run<Config>(*static_cast<const Config::Params*>(params));             \
   }},
constexpr Entry kEntries[] = {
#include "instances/common.inc"
};
#undef ISO_KERNEL
#undef ISO_ARGUMENTS

}  // namespace

void* EmulatorMachine::upload(const void* data, std::size_t bytes, const std::string& name) {
  blocks_.push_back(std::make_unique<Block[]>(bytes / sizeof(Block) + 1));
  u8* memory = blocks_.back()[0].bytes;
  std::memset(memory, 0xff, bytes);
  if (data != nullptr && bytes != 0) std::memcpy(memory, data, bytes);
  if (data != nullptr) inputs_.push_back({reinterpret_cast<u16*>(memory), bytes / sizeof(u16)});
  memory_->add(memory, bytes, name, data != nullptr ? emu::Contents::initialised : emu::Contents::uninitialised);
  return memory;
}

void EmulatorMachine::download(void* data, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(data, from, bytes);
}

std::string EmulatorMachine::rewrite_inputs() {
  const auto kernel = [&] {
    for (const Input& input : inputs_)
      for (std::size_t n = instr::tid_x(); n < input.elements; n += 32)
        instr::st_global_b16(input.data + n, instr::ld_global_b16(input.data + n));
  };
  const Expected<emu::LaunchStats> done = emu::launch({.grid = {}, .cluster = {}, .threads = 32}, *memory_, kernel);
  return done ? "" : done.error().message();
}

std::string EmulatorMachine::run(const std::string& kernel, const std::string& variant, i64 grid, const void* params) {
  for (const Entry& entry : kEntries) {
    if (entry.kernel != kernel || entry.variant != variant) continue;
    if (grid == 0) return "";
    if (inputs_by_grid_before)
      if (std::string fault = rewrite_inputs(); !fault.empty()) return fault;
    config.grid = {static_cast<u32>(grid), 1, 1};
    config.threads = entry.threads;
    config.shared_bytes = entry.shared_bytes;
    const Expected<emu::LaunchStats> done = emu::launch(config, *memory_, [&] { entry.run(params); });
    return done ? "" : done.error().message();
  }
  return "no instance " + kernel + " " + variant;
}

void EmulatorMachine::clear() {
  memory_ = std::make_unique<emu::GlobalMemory>();
  blocks_.clear();
  inputs_.clear();
}

}  // namespace iso::test
