// Running small kernels in the emulator: with every one of several seeds a rule that is broken must be reported, and a
// correct kernel must not.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "emulator/launch.h"
#include "emulator/tensor_map.h"
#include "instr/instr.h"

namespace iso::test {

using Kernel = std::function<void()>;

inline constexpr u64 kSeeds = 20;

// The memory of a launch and the buffers in it.
class Memory {
 public:
  template <class T>
  void add(const std::vector<T>& buffer, const std::string& name, emu::Contents contents = emu::Contents::initialised) {
    memory_.add(buffer.data(), buffer.size() * sizeof(T), name, contents);
  }
  emu::GlobalMemory& get() { return memory_; }

 private:
  emu::GlobalMemory memory_;
};

// How to run a failing case again: the seed is all that matters.
inline std::string with_seed(u64 seed) { return "seed " + std::to_string(seed) + " (LaunchConfig::seed)"; }

// Every seed reports error E and names the kernel's file, if it names any place.
template <class E>
std::string expect_fault(emu::LaunchConfig config, const Kernel& kernel, const std::function<void(Memory&)>& fill = {}) {
  std::string message;
  for (config.seed = 1; config.seed <= kSeeds; config.seed++) {
    Memory memory;
    if (fill) fill(memory);
    const Expected<emu::LaunchStats> result = emu::launch(config, memory.get(), kernel);
    if (result) {
      ADD_FAILURE() << "no fault was reported, expected " << E::kId << "; " << with_seed(config.seed);
      return "";
    }
    EXPECT_EQ(result.error().id(), E::kId) << result.error().message() << "; " << with_seed(config.seed);
    message = result.error().message();
    EXPECT_EQ(message.find('\n'), std::string::npos) << "a message is one line: " << message;
    if (result.error().id() != E::kId) return message;
  }
  return message;
}

inline void expect_silent(emu::LaunchConfig config, const Kernel& kernel, const std::function<void(Memory&)>& fill = {}) {
  for (config.seed = 1; config.seed <= kSeeds; config.seed++) {
    Memory memory;
    if (fill) fill(memory);
    const Expected<emu::LaunchStats> result = emu::launch(config, memory.get(), kernel);
    ASSERT_TRUE(result) << "a correct kernel was reported: " << result.error().message() << "; " << with_seed(config.seed);
  }
}

inline void expect_mentions(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
}

// A map of a row-major matrix of `rows` x `columns` with boxes of box_rows x box_columns.
inline instr::TensorMap tensor_map_2d(const void* data, emu::TensorType type, u64 rows, u64 columns, u32 box_rows,
                                      u32 box_columns, emu::Swizzle swizzle) {
  emu::TensorMapFields f;
  f.address = reinterpret_cast<u64>(data);
  f.type = type;
  f.rank = 2;
  f.size[0] = columns;
  f.size[1] = rows;
  f.stride[0] = static_cast<u64>(emu::element_size(type));
  f.stride[1] = columns * f.stride[0];
  f.box[0] = box_columns;
  f.box[1] = box_rows;
  for (u32& stride : f.element_stride) stride = 1;
  f.swizzle = swizzle;
  instr::TensorMap map;
  const std::string wrong = emu::encode(f, map.bits);
  EXPECT_EQ(wrong, "");
  return map;
}

// A vector aligned to 16 bytes, as TMA wants it, is what std::vector gives on the platforms we build on.
inline std::vector<bf16> random_bf16(std::size_t count, u32 seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<bf16> values(count);
  for (bf16& x : values) x = to_bf16(uniform(random));
  return values;
}

}  // namespace iso::test
