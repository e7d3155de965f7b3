// A GPU for tests and timings: memory, a stream and events through the driver, and the Machine that runs kernels on it.
#pragma once

#include <functional>
#include <vector>

#include "common_kernels/machine.h"
#include "cuda/launch.h"

namespace iso::test {

class Gpu final : public Machine {
 public:
  // The process's first GPU; what is missing otherwise.
  static Expected<std::unique_ptr<Gpu>> open();
  ~Gpu() override;

  const cuda::DeviceInfo& device() const { return device_; }
  const cuda::Driver& driver() const { return driver_; }

  void* upload(const void* data, std::size_t bytes, const std::string& name) override;
  void download(void* data, const void* from, std::size_t bytes) override;
  std::string run(const std::string& kernel, const std::string& variant, i64 grid, const void* params) override;
  void clear() override;

  // Queues a launch; run() without waiting for its end.
  std::string launch(const std::string& kernel, const std::string& variant, i64 grid, const void* params);
  void fill(void* to, u8 value, std::size_t bytes);
  void copy(void* to, const void* from, std::size_t bytes);
  std::string wait();
  // Milliseconds of each of `times` calls of `queue`, which queues work, with the L2 cache flushed before each.
  std::vector<float> time(int times, const std::function<void()>& queue);

 private:
  struct Functions;
  Gpu(const cuda::Driver& driver, cuda::DeviceInfo device, cuda::ScopedContext context);
  void check(cuda::Result result, const char* call) const;

  const cuda::Driver& driver_;
  cuda::DeviceInfo device_;
  cuda::ScopedContext context_;
  std::unique_ptr<Functions> call_;
  cuda::Stream stream_ = nullptr;
  std::vector<u64> memory_;
  u64 flush_ = 0;
};

}  // namespace iso::test
