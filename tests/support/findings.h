// What the C ABI says about a call, for tests of errors.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "isoflash/isoflash.h"
#include "support/example_problem.h"

namespace iso::test {

struct Finding {
  int id = 0;
  std::string name, message, json;

  bool mentions(const std::string& text) const { return message.find(text) != std::string::npos; }
};

class ErrorHolder {
 public:
  ErrorHolder() : error_(isoflash_error_create()) {}
  ~ErrorHolder() { isoflash_error_destroy(error_); }
  ErrorHolder(const ErrorHolder&) = delete;
  isoflash_error* get() { return error_; }
  Finding finding(isoflash_status status) const {
    EXPECT_EQ(isoflash_error_id(error_), status) << "the status and the error object must agree";
    return {status, isoflash_error_name(error_), isoflash_error_message(error_), isoflash_error_json(error_)};
  }

 private:
  isoflash_error* error_;
};

inline Finding plan_finding(const isoflash_problem& problem, const isoflash_plan_options* options = nullptr) {
  ErrorHolder error;
  isoflash_plan* plan = nullptr;
  const isoflash_status status = isoflash_plan_create(&problem, options, &plan, error.get());
  EXPECT_EQ(plan == nullptr, status != 0) << "a plan comes exactly with success";
  isoflash_plan_destroy(plan);
  return error.finding(status);
}

// A plan of the example problem, with valid arguments for both calls.
class Calls {
 public:
  explicit Calls(ExampleProblem& example) {
    const isoflash_status status = isoflash_plan_create(&example.problem, nullptr, &plan_, error_.get());
    EXPECT_EQ(status, 0) << isoflash_error_message(error_.get());
    forward = example.forward_args(plan_);
    backward = example.backward_args(plan_);
  }
  ~Calls() { isoflash_plan_destroy(plan_); }
  Calls(const Calls&) = delete;

  Finding run_forward() { return error_.finding(isoflash_forward(plan_, &forward, error_.get())); }
  Finding run_backward() { return error_.finding(isoflash_backward(plan_, &backward, error_.get())); }
  const isoflash_plan* plan() const { return plan_; }

  isoflash_forward_args forward;
  isoflash_backward_args backward;

 private:
  ErrorHolder error_;
  isoflash_plan* plan_ = nullptr;
};

// The finding is the error of type E, and its line names all of `parts`.
template <class E>
void expect_error(const Finding& f, std::initializer_list<const char*> parts = {}) {
  EXPECT_EQ(f.id, E::kId) << f.name << ": " << f.message;
  for (const char* part : parts) EXPECT_TRUE(f.mentions(part)) << "no \"" << part << "\" in: " << f.message;
  EXPECT_EQ(f.message.find('\n'), std::string::npos);
  EXPECT_NE(f.json.find("\"" + f.name + "\""), std::string::npos) << f.json;
}

}  // namespace iso::test
