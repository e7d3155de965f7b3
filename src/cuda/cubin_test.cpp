#include "cuda/cubin.h"

#include <gmock/gmock.h>

#include <thread>

#include "fake_driver/fixture.h"

namespace iso::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// The fake driver takes a cubin's text for the name of its kernel.
constexpr char kCode[] = "isoflash_small", kOtherCode[] = "isoflash_other";
const Cubin kCubins[] = {
    {"isoflash_small", Architecture::sm90, reinterpret_cast<const u8*>(kCode), nullptr},
    {"isoflash_large", Architecture::sm90, reinterpret_cast<const u8*>(kOtherCode), nullptr},
};
const Cubin* find_fake(std::string_view symbol) {
  for (const Cubin& cubin : kCubins)
    if (cubin.symbol == symbol) return &cubin;
  return nullptr;
}

constexpr Instance kSmall{"isoflash_small", Architecture::sm90, "small", "bf16", 256, 0};
constexpr Instance kWithoutAsking{"isoflash_small", Architecture::sm90, "small", "bf16", 256, 49152};
constexpr Instance kLargeShared{"isoflash_small", Architecture::sm90, "small", "bf16", 256, 49153};
constexpr Instance kWrongName{"isoflash_large", Architecture::sm90, "large", "bf16", 256, 0};
constexpr Instance kAbsent{"isoflash_absent", Architecture::sm90, "absent", "bf16", 256, 0};
constexpr Instance kBlackwell{"isoflash_small", Architecture::sm100, "small", "bf16", 256, 0};

class CudaKernelCache : public FakeDriverTest {};

TEST_F(CudaKernelCache, LoadsOncePerProcessAndIntoEachContext) {
  fake().devices.resize(2);
  {
    const Driver driver = open();
    KernelCache cache(driver, find_fake);
    for (const i32 index : {0, 1, 0}) {
      const Expected<LoadedKernel> kernel = cache.load(kSmall, *driver.device(index));
      ASSERT_TRUE(kernel) << kernel.error().message();
      EXPECT_EQ(kernel->instance, &kSmall);
      EXPECT_NE(kernel->handle, nullptr);
    }
    EXPECT_EQ(fake().num_loads, 1);
    EXPECT_THAT(fake().function_loads, ElementsAre(0, 1, 0));
    EXPECT_THAT(fake().shared_bytes_set, ElementsAre());
    EXPECT_EQ(context_depth(), 0);
  }
  EXPECT_EQ(fake().num_unloads, 1);
}

TEST_F(CudaKernelCache, AsksForSharedMemoryAbove48KiB) {
  fake().devices.resize(2);
  const Driver driver = open();
  KernelCache cache(driver, find_fake);
  ASSERT_TRUE(cache.load(kWithoutAsking, *driver.device(1)));
  EXPECT_THAT(fake().shared_bytes_set, ElementsAre());
  ASSERT_TRUE(cache.load(kLargeShared, *driver.device(1)));
  EXPECT_THAT(fake().shared_bytes_set, ElementsAre(Pair(1, 49153)));
}

TEST_F(CudaKernelCache, ThreadsShareOneLoad) {
  fake().devices.resize(4);
  const Driver driver = open();
  KernelCache cache(driver, find_fake);
  std::vector<std::thread> threads;
  std::vector<Kernel> handles(16);
  for (std::size_t t = 0; t < handles.size(); ++t)
    threads.emplace_back([&, t] {
      const Expected<LoadedKernel> kernel = cache.load(kSmall, *driver.device(static_cast<i32>(t % 4)));
      if (kernel) handles[t] = kernel->handle;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake().num_loads, 1);
  EXPECT_EQ(fake().num_retains, 4);
  EXPECT_EQ(fake().function_loads.size(), handles.size());
  EXPECT_NE(handles[0], nullptr);
  EXPECT_THAT(handles, testing::Each(handles[0]));
}

TEST_F(CudaKernelCache, CubinMissing) {
  const Driver driver = open();
  KernelCache cache(driver, find_fake);
  const Expected<LoadedKernel> kernel = cache.load(kAbsent, *driver.device(0));
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().name(), "CUBIN_MISSING");
  EXPECT_THAT(kernel.error().message(), HasSubstr("isoflash_absent is not among them"));
}

TEST_F(CudaKernelCache, KernelOfAnotherArchitectureIsRefused) {
  const Driver driver = open();
  KernelCache cache(driver, find_fake);
  const Expected<LoadedKernel> kernel = cache.load(kBlackwell, *driver.device(0));
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().name(), "ARCHITECTURE_UNSUPPORTED");
  EXPECT_THAT(kernel.error().message(), HasSubstr("capability 9.0, kernels exist for sm100"));
}

TEST_F(CudaKernelCache, CubinLoad) {
  const Driver driver = open();
  KernelCache cache(driver, find_fake);
  fail("cuLibraryLoadData");
  fake().load_log = "first line\nsecond line\n";
  Expected<LoadedKernel> kernel = cache.load(kSmall, *driver.device(0));
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().name(), "CUBIN_LOAD");
  EXPECT_THAT(kernel.error().message(), HasSubstr("CUDA_ERROR_INVALID_VALUE (invalid argument)"));
  EXPECT_THAT(kernel.error().message(), HasSubstr("log: first line second line)"));
  EXPECT_THAT(kernel.error().message(), HasSubstr("driver for CUDA 13.0"));

  for (const char* call : {"cuLibraryGetKernel", "cuKernelSetAttribute", "cuKernelGetFunction"}) {
    fail(call);
    kernel = cache.load(kLargeShared, *driver.device(0));
    ASSERT_FALSE(kernel) << call;
    EXPECT_EQ(kernel.error().name(), "CUBIN_LOAD");
    EXPECT_EQ(context_depth(), 0);
  }
  fake().failing_call.clear();
  EXPECT_TRUE(cache.load(kSmall, *driver.device(0)));
}

TEST_F(CudaKernelCache, CubinWithoutTheKernelIsUnloaded) {
  const Driver driver = open();
  KernelCache cache(driver, find_fake);
  const Expected<LoadedKernel> kernel = cache.load(kWrongName, *driver.device(0));
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().name(), "CUBIN_LOAD");
  EXPECT_EQ(fake().num_loads, 1);
  EXPECT_EQ(fake().num_unloads, 1);
}

}  // namespace
}  // namespace iso::cuda
