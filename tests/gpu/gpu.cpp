#include "gpu/gpu.h"

#include <fmt/format.h>

#include <stdexcept>

namespace iso::test {
namespace {

using cuda::Result;
using cuda::Stream;
using Event = struct EventTag*;

// More than the L2 cache of any GPU served.
constexpr std::size_t kFlushBytes = std::size_t{256} << 20;

}  // namespace

// Driver functions that only tests call.
struct Gpu::Functions {
  Result (*allocate)(u64* address, std::size_t bytes);
  Result (*release)(u64 address);
  Result (*copy_to_device)(u64 to, const void* from, std::size_t bytes);
  Result (*copy_to_host)(void* to, u64 from, std::size_t bytes);
  Result (*copy_async)(u64 to, u64 from, std::size_t bytes, Stream stream);
  Result (*fill_async)(u64 to, u8 value, std::size_t bytes, Stream stream);
  Result (*stream_create)(Stream* stream, u32 flags);
  Result (*stream_destroy)(Stream stream);
  Result (*stream_synchronize)(Stream stream);
  Result (*event_create)(Event* event, u32 flags);
  Result (*event_destroy)(Event event);
  Result (*event_record)(Event event, Stream stream);
  Result (*event_elapsed)(float* milliseconds, Event begin, Event end);

  explicit Functions(const cuda::Driver& driver) {
    const auto find = [&]<class F>(F& function, const char* symbol) {
      function = reinterpret_cast<F>(driver.find(symbol));
      if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + symbol);
    };
    find(allocate, "cuMemAlloc_v2");
    find(release, "cuMemFree_v2");
    find(copy_to_device, "cuMemcpyHtoD_v2");
    find(copy_to_host, "cuMemcpyDtoH_v2");
    find(copy_async, "cuMemcpyDtoDAsync_v2");
    find(fill_async, "cuMemsetD8Async");
    find(stream_create, "cuStreamCreate");
    find(stream_destroy, "cuStreamDestroy_v2");
    find(stream_synchronize, "cuStreamSynchronize");
    find(event_create, "cuEventCreate");
    find(event_destroy, "cuEventDestroy_v2");
    find(event_record, "cuEventRecord");
    find(event_elapsed, "cuEventElapsedTime");
  }
};

Expected<std::unique_ptr<Gpu>> Gpu::open() {
  const Expected<cuda::Driver>& driver = cuda::driver();
  if (!driver) return tl::unexpected(driver.error());
  const Expected<cuda::DeviceInfo> device = driver->device(0);
  if (!device) return tl::unexpected(device.error());
  if (auto architecture = cuda::architecture_of(*device); !architecture) return tl::unexpected(architecture.error());
  Expected<cuda::ScopedContext> context = cuda::ScopedContext::enter(*driver, *device);
  if (!context) return tl::unexpected(context.error());
  return std::unique_ptr<Gpu>(new Gpu(*driver, *device, *std::move(context)));
}

Gpu::Gpu(const cuda::Driver& driver, cuda::DeviceInfo device, cuda::ScopedContext context)
    : driver_(driver),
      device_(std::move(device)),
      context_(std::move(context)),
      call_(std::make_unique<Functions>(driver)) {
  check(call_->stream_create(&stream_, 1), "cuStreamCreate");  // 1: does not wait for the default stream
}

Gpu::~Gpu() {
  clear();
  if (flush_ != 0) call_->release(flush_);
  call_->stream_destroy(stream_);
}

void Gpu::check(Result result, const char* call) const {
  if (auto ok = driver_.check(result, call); !ok) throw std::runtime_error(ok.error().message());
}

void* Gpu::upload(const void* data, std::size_t bytes, const std::string&) {
  u64 address = 0;
  check(call_->allocate(&address, bytes == 0 ? 1 : bytes), "cuMemAlloc");
  memory_.push_back(address);
  if (data != nullptr && bytes != 0) check(call_->copy_to_device(address, data, bytes), "cuMemcpyHtoD");
  return reinterpret_cast<void*>(address);
}

void Gpu::download(void* data, const void* from, std::size_t bytes) {
  if (bytes != 0) check(call_->copy_to_host(data, reinterpret_cast<u64>(from), bytes), "cuMemcpyDtoH");
}

void Gpu::clear() {
  for (const u64 address : memory_) call_->release(address);
  memory_.clear();
}

std::string Gpu::launch(const std::string& kernel, const std::string& variant, i64 grid, const void* params) {
  const Instance* instance = find_instance(*cuda::architecture_of(device_), kernel, variant);
  if (instance == nullptr) return fmt::format("no instance {} {}", kernel, variant);
  const Expected<cuda::LoadedKernel> loaded = cuda::kernel_cache().load(*instance, device_);
  if (!loaded) return loaded.error().message();
  const Expected<void> launched = cuda::launch(driver_, *loaded, {.grid_x = grid}, stream_, params);
  return launched ? "" : launched.error().message();
}

std::string Gpu::wait() {
  const Expected<void> done = driver_.check(call_->stream_synchronize(stream_), "cuStreamSynchronize");
  return done ? "" : done.error().message();
}

std::string Gpu::run(const std::string& kernel, const std::string& variant, i64 grid, const void* params) {
  std::string fault = launch(kernel, variant, grid, params);
  return fault.empty() ? wait() : fault;
}

void Gpu::fill(void* to, u8 value, std::size_t bytes) {
  check(call_->fill_async(reinterpret_cast<u64>(to), value, bytes, stream_), "cuMemsetD8Async");
}

void Gpu::copy(void* to, const void* from, std::size_t bytes) {
  check(call_->copy_async(reinterpret_cast<u64>(to), reinterpret_cast<u64>(from), bytes, stream_), "cuMemcpyDtoDAsync");
}

std::vector<float> Gpu::time(int times, const std::function<void()>& queue) {
  if (flush_ == 0) check(call_->allocate(&flush_, kFlushBytes), "cuMemAlloc");
  Event begin = nullptr, end = nullptr;
  check(call_->event_create(&begin, 0), "cuEventCreate");
  check(call_->event_create(&end, 0), "cuEventCreate");
  std::vector<float> milliseconds(times);
  for (float& ms : milliseconds) {
    check(call_->fill_async(flush_, 1, kFlushBytes, stream_), "cuMemsetD8Async");
    check(call_->event_record(begin, stream_), "cuEventRecord");
    queue();
    check(call_->event_record(end, stream_), "cuEventRecord");
    check(call_->stream_synchronize(stream_), "cuStreamSynchronize");
    check(call_->event_elapsed(&ms, begin, end), "cuEventElapsedTime");
  }
  call_->event_destroy(begin);
  call_->event_destroy(end);
  return milliseconds;
}

}  // namespace iso::test
