#include "cuda/driver.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "fake_driver/fixture.h"

namespace iso::cuda {
namespace {

using testing::HasSubstr;

class CudaDriver : public FakeDriverTest {};

TEST_F(CudaDriver, Missing) {
  const Expected<Driver> driver = Driver::open("libcuda_that_is_not_there.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().name(), "DRIVER_MISSING");
  EXPECT_THAT(driver.error().message(), HasSubstr("libcuda_that_is_not_there.so.1"));
}

TEST_F(CudaDriver, TooOld) {
  const Expected<Driver> driver = Driver::open(ISO_OLD_DRIVER);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().name(), "DRIVER_TOO_OLD");
  EXPECT_THAT(driver.error().message(), HasSubstr("is for CUDA 11.4"));
  EXPECT_THAT(driver.error().message(), HasSubstr("has no cuGetErrorName"));
}

TEST_F(CudaDriver, NoDevice) {
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  fake().devices.clear();
  const Expected<Driver> empty = Driver::open(ISO_FAKE_DRIVER);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().name(), "NO_DEVICE");
  EXPECT_THAT(empty.error().message(), HasSubstr("CUDA_VISIBLE_DEVICES is \"-1\""));
  unsetenv("CUDA_VISIBLE_DEVICES");
  fail("cuInit", kNoDeviceResult);
  const Expected<Driver> refused = Driver::open(ISO_FAKE_DRIVER);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().name(), "NO_DEVICE");
  EXPECT_THAT(refused.error().message(), HasSubstr("CUDA_VISIBLE_DEVICES is not set"));
}

TEST_F(CudaDriver, CallFailed) {
  fail("cuInit");
  const Expected<Driver> driver = Driver::open(ISO_FAKE_DRIVER);
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().name(), "DRIVER_CALL");
  EXPECT_THAT(driver.error().message(), HasSubstr("cuInit failed: CUDA_ERROR_INVALID_VALUE (invalid argument)"));
}

TEST_F(CudaDriver, DescribesDevices) {
  fake().devices = {{}, {"Fake B200", 10, 0, 148, 232448}};
  const Driver driver = open();
  EXPECT_EQ(driver.version(), "13.0");
  EXPECT_EQ(driver.device_count(), 2);
  const Expected<DeviceInfo> device = driver.device(1);
  ASSERT_TRUE(device);
  EXPECT_EQ(device->text(), "1 \"Fake B200\"");
  EXPECT_EQ(device->major, 10);
  EXPECT_EQ(device->minor, 0);
  EXPECT_EQ(device->num_multiprocessors, 148);
  EXPECT_EQ(device->max_shared_bytes, 232448);
  EXPECT_NE(driver.find("cuInit"), nullptr);
  EXPECT_EQ(driver.find("cuNothing"), nullptr);
  EXPECT_EQ(driver.error_text(999), "error 999");
}

TEST_F(CudaDriver, DeviceIndex) {
  const Driver driver = open();
  for (const i32 index : {-1, 1}) {
    const Expected<DeviceInfo> device = driver.device(index);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().name(), "DEVICE_INDEX");
  }
}

TEST_F(CudaDriver, EveryFailingDeviceCallIsNamed) {
  for (const char* call : {"cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute"}) {
    const Driver driver = open();
    fail(call);
    const Expected<DeviceInfo> device = driver.device(0);
    ASSERT_FALSE(device);
    EXPECT_THAT(device.error().message(), HasSubstr(std::string(call) + " failed"));
    fake().failing_call.clear();
  }
}

TEST_F(CudaDriver, ArchitectureUnsupported) {
  const std::pair<std::pair<i32, i32>, const char*> cases[] = {{{9, 0}, "sm90"},  {{10, 0}, "sm100"}, {{10, 3}, "sm100"},
                                                               {{8, 0}, nullptr}, {{8, 9}, nullptr},  {{12, 0}, nullptr}};
  for (const auto& [capability, expected] : cases) {
    fake().devices = {{"Fake", capability.first, capability.second, 1, 1}};
    const Driver driver = open();
    const Expected<Architecture> architecture = architecture_of(*driver.device(0));
    if (expected != nullptr) {
      ASSERT_TRUE(architecture);
      EXPECT_STREQ(architecture_name(*architecture), expected);
    } else {
      ASSERT_FALSE(architecture);
      EXPECT_EQ(architecture.error().name(), "ARCHITECTURE_UNSUPPORTED");
    }
  }
}

TEST_F(CudaDriver, ContextOfTheDeviceIsKeptOthersAreReplaced) {
  fake().devices.resize(2);
  const Driver driver = open();
  const DeviceInfo first = *driver.device(0), second = *driver.device(1);
  {
    const Expected<ScopedContext> outer = ScopedContext::enter(driver, first);
    ASSERT_TRUE(outer);
    EXPECT_EQ(context_depth(), 1);
    const Expected<ScopedContext> same = ScopedContext::enter(driver, first);
    ASSERT_TRUE(same);
    EXPECT_EQ(context_depth(), 1);
    const Expected<ScopedContext> other = ScopedContext::enter(driver, second);
    ASSERT_TRUE(other);
    EXPECT_EQ(context_depth(), 2);
  }
  EXPECT_EQ(context_depth(), 0);
  EXPECT_EQ(fake().num_retains, 2);
}

TEST_F(CudaDriver, PrimaryContextsAreRetainedOnceAndReleasedAtTheEnd) {
  {
    const Driver driver = open();
    const DeviceInfo device = *driver.device(0);
    ASSERT_TRUE(driver.primary_context(device));
    ASSERT_TRUE(driver.primary_context(device));
    EXPECT_EQ(fake().num_retains, 1);
    EXPECT_EQ(fake().num_releases, 0);
  }
  EXPECT_EQ(fake().num_releases, 1);
}

TEST_F(CudaDriver, FailingContextsLeaveNothingBehind) {
  const Driver driver = open();
  const DeviceInfo device = *driver.device(0);
  for (const char* call : {"cuCtxGetCurrent", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2"}) {
    fail(call);
    const Expected<ScopedContext> context = ScopedContext::enter(driver, device);
    ASSERT_FALSE(context) << call;
    EXPECT_EQ(context.error().name(), "DRIVER_CALL");
    EXPECT_EQ(context_depth(), 0);
  }
  fake().failing_call.clear();
  EXPECT_TRUE(ScopedContext::enter(driver, device));
}

}  // namespace
}  // namespace iso::cuda
