// Memory runs out, or something unforeseen is thrown, at every single allocation that making a plan does: each time an
// error comes back, and nothing else happens. Running a plan allocates nothing, so there it cannot happen.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <stdexcept>

#include "errors/error.h"
#include "support/example_problem.h"

namespace {

thread_local int allocations_until_failure = -1;  // negative: never
thread_local bool fail_with_other_exception = false;

}  // namespace

// All out of line, or the compiler sees free() meet memory of what it takes for the standard operator new.
__attribute__((noinline)) void* operator new(std::size_t size) {
  if (allocations_until_failure >= 0 && allocations_until_failure-- == 0) {
    if (fail_with_other_exception) throw std::runtime_error("unforeseen");
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace iso {
namespace {

// Fails allocation 0, 1, 2, ... of isoflash_plan_create until it gets through; returns how many failures there were.
int fail_each_allocation(int expected_status) {
  const test::ExampleProblem e = test::ExampleProblem::packed({0, 3, 7}, {0, 5, 10});
  isoflash_error* error = isoflash_error_create();
  int failures = 0;
  for (isoflash_status status = -1; status != ISOFLASH_OK; ++failures) {
    isoflash_plan* plan = nullptr;
    allocations_until_failure = failures;
    status = isoflash_plan_create(&e.problem, nullptr, &plan, error);
    allocations_until_failure = -1;
    EXPECT_EQ(isoflash_error_id(error), status);
    if (status == ISOFLASH_OK) {
      isoflash_plan_destroy(plan);
      break;
    }
    EXPECT_EQ(plan, nullptr);
    EXPECT_EQ(status, expected_status) << isoflash_error_message(error);
    if (failures > 1000) {
      ADD_FAILURE() << "never got through";
      break;
    }
  }
  isoflash_error_destroy(error);
  return failures;
}

TEST(ErrorsRaised, OutOfMemory) {
  fail_with_other_exception = false;
  EXPECT_GT(fail_each_allocation(errors::OutOfMemory::kId), 3);
}

TEST(ErrorsRaised, Internal) {
  fail_with_other_exception = true;
  EXPECT_GT(fail_each_allocation(errors::Internal::kId), 3);
}

TEST(Allocation, NoneInACall) {
  fail_with_other_exception = false;
  test::ExampleProblem e = test::ExampleProblem::packed({0, 3, 7}, {0, 5, 10});
  isoflash_plan_options options;
  isoflash_plan_options_init(&options);
  options.num_threads = 1;  // so that all work is on this thread, where allocations are counted
  isoflash_plan* plan = nullptr;
  ASSERT_EQ(isoflash_plan_create(&e.problem, &options, &plan, nullptr), 0);
  const isoflash_forward_args forward = e.forward_args(plan);
  const isoflash_backward_args backward = e.backward_args(plan);
  allocations_until_failure = 0;
  const isoflash_status forward_status = isoflash_forward(plan, &forward, nullptr);
  const isoflash_status backward_status = isoflash_backward(plan, &backward, nullptr);
  const bool allocated = allocations_until_failure < 0;
  allocations_until_failure = -1;
  EXPECT_EQ(forward_status, 0);
  EXPECT_EQ(backward_status, 0);
  EXPECT_FALSE(allocated) << "isoflash_forward or isoflash_backward called operator new";
  isoflash_plan_destroy(plan);
}

}  // namespace
}  // namespace iso
