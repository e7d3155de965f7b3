// A test with the fake driver in its initial state; link the library's file as ISO_FAKE_DRIVER.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "cuda/driver.h"
#include "fake_driver/fake_driver.h"

namespace iso::cuda {

class FakeDriverTest : public testing::Test {
 protected:
  FakeDriverTest() : handle_(dlopen(ISO_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    fake() = FakeDriver{};
  }
  ~FakeDriverTest() override { dlclose(handle_); }

  FakeDriver& fake() { return reinterpret_cast<FakeDriverFunction>(dlsym(handle_, kFakeDriverSymbol))(); }
  i32 context_depth() { return reinterpret_cast<FakeContextDepthFunction>(dlsym(handle_, kFakeContextDepthSymbol))(); }
  void fail(const char* call, Result result = kInvalidValue) {
    fake().failing_call = call;
    fake().failing_result = result;
  }
  Driver open() {
    Expected<Driver> driver = Driver::open(ISO_FAKE_DRIVER);
    if (!driver) throw std::runtime_error(driver.error().message());
    return *std::move(driver);
  }

 private:
  void* handle_;
};

}  // namespace iso::cuda
