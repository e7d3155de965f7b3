// gpu_tests: GoogleTest where there is a GPU and a build with kernels, else one line and exit status 77.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/gpu.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const auto gpu = iso::test::Gpu::open(); !gpu) {
    fmt::print("no GPU to test on: {}\n", gpu.error().message());
    return 77;
  }
  if (iso::embedded_cubins().empty()) {
    fmt::print("no kernels in this build: run make kernels\n");
    return 77;
  }
  return RUN_ALL_TESTS();
}
