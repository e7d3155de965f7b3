#include "cuda/launch.h"

#include <gmock/gmock.h>

#include "fake_driver/fixture.h"

namespace iso::cuda {
namespace {

using testing::HasSubstr;

constexpr Instance kInstance{"isoflash_small", Architecture::sm90, "small", "bf16", 384, 1000};
char kernel_stands_for[1];
const LoadedKernel kKernel{&kInstance, reinterpret_cast<Kernel>(kernel_stands_for)};

class CudaLaunch : public FakeDriverTest {};

TEST_F(CudaLaunch, PassesShapeStreamAndParams) {
  const Driver driver = open();
  const Expected<ScopedContext> context = ScopedContext::enter(driver, *driver.device(0));
  ASSERT_TRUE(context);
  const int params = 7;
  char stream_stands_for;
  const auto stream = reinterpret_cast<Stream>(&stream_stands_for);
  ASSERT_TRUE(launch(driver, kKernel, {.grid_x = 2147483647, .grid_y = 65535, .grid_z = 3}, stream, &params));
  ASSERT_EQ(fake().launches.size(), 1u);
  const FakeLaunch& done = fake().launches[0];
  EXPECT_EQ(done.config.grid_x, 2147483647u);
  EXPECT_EQ(done.config.grid_y, 65535u);
  EXPECT_EQ(done.config.grid_z, 3u);
  EXPECT_EQ(done.config.block_x, 384u);
  EXPECT_EQ(done.config.block_y * done.config.block_z, 1u);
  EXPECT_EQ(done.config.shared_bytes, 1000u);
  EXPECT_EQ(done.config.stream, stream);
  EXPECT_EQ(done.kernel, kernel_stands_for);
  EXPECT_EQ(done.params, &params);
  EXPECT_TRUE(done.attributes.empty());
}

TEST_F(CudaLaunch, AttributesOnlyWhereAsked) {
  const Driver driver = open();
  const Expected<ScopedContext> context = ScopedContext::enter(driver, *driver.device(0));
  ASSERT_TRUE(context);
  ASSERT_TRUE(launch(driver, kKernel, {.grid_x = 4, .cluster_x = 2, .overlaps_previous = true}, nullptr, nullptr));
  ASSERT_TRUE(launch(driver, kKernel, {.grid_x = 4, .overlaps_previous = true}, nullptr, nullptr));
  ASSERT_EQ(fake().launches.size(), 2u);
  const std::vector<LaunchAttribute>& both = fake().launches[0].attributes;
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].id, kClusterDimension);
  EXPECT_EQ(both[0].cluster.x, 2u);
  EXPECT_EQ(both[0].cluster.y * both[0].cluster.z, 1u);
  EXPECT_EQ(both[1].id, kProgrammaticStreamSerialization);
  EXPECT_EQ(both[1].flag, 1);
  ASSERT_EQ(fake().launches[1].attributes.size(), 1u);
  EXPECT_EQ(fake().launches[1].attributes[0].id, kProgrammaticStreamSerialization);
}

TEST_F(CudaLaunch, EmptyGridIsNoLaunch) {
  const Driver driver = open();
  ASSERT_TRUE(launch(driver, kKernel, {.grid_x = 0}, nullptr, nullptr));
  EXPECT_TRUE(fake().launches.empty());
}

TEST_F(CudaLaunch, Refused) {
  const Driver driver = open();
  const Expected<ScopedContext> context = ScopedContext::enter(driver, *driver.device(0));
  ASSERT_TRUE(context);
  fail("cuLaunchKernelEx");
  Expected<void> done = launch(driver, kKernel, {.grid_x = 5}, nullptr, nullptr);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().name(), "LAUNCH_FAILED");
  EXPECT_THAT(done.error().message(),
              HasSubstr("isoflash_small could not be launched (grid 5x1x1, 384 threads, 1000 bytes of shared memory): "
                        "CUDA_ERROR_INVALID_VALUE"));
  fake().failing_call.clear();
  for (const LaunchShape& shape :
       {LaunchShape{.grid_x = i64{1} << 31}, LaunchShape{.grid_y = 65536}, LaunchShape{.grid_z = 65536}}) {
    done = launch(driver, kKernel, shape, nullptr, nullptr);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().name(), "LAUNCH_FAILED");
  }
  EXPECT_TRUE(fake().launches.empty());
}

}  // namespace
}  // namespace iso::cuda
