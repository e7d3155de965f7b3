// Timing: subjects are prepared, checked, then run in turns, so that a change of the machine's speed meets all of them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "batch.h"
#include "isoflash/isoflash.hpp"
#include "run_batch.h"

namespace iso::tool {

enum class Direction { forward, backward };
const char* direction_name(Direction direction);

// Input sets a subject rotates through, so that no run finds its inputs in the cache because the last one left them there.
inline constexpr int kInputSets = 3;

// One case with one dtype: its input sets, its outputs, its plan.
class Subject {
 public:
  // `plain` names the case that says the same in the plain form; empty: none.
  Subject(std::string name, std::string plain, std::array<Batch, kInputSets> inputs, isoflash::PlanOptions options);

  const std::string& name() const { return name_; }
  const std::string& plain() const { return plain_; }
  // Paged and cached keys have none, nor has a batch without dout whose q cannot stand in for it.
  bool has_backward() const { return sets_[0].tensors.dout.rank != 0; }
  DType dtype() const { return static_cast<DType>(sets_[0].call.q.dtype); }
  std::string kernel() const { return plan_->kernel(); }
  std::int64_t visible_pairs() const { return plan_->visible_pairs(); }
  std::size_t workspace_bytes(Direction direction) const;
  double useful_flops(Direction direction) const;

  // The backward needs the forward's out and lse of the same set.
  void run(Direction direction, int set);
  // Runs both on set 0 and compares sampled rows with the oracle; the finding, or "" if every row is right.
  std::string check(bool backward, const std::function<void(i64 done, i64 total)>& progress);

 private:
  struct InputSet {
    Batch inputs;
    TensorData out, lse;
    Gradients gradients;
    isoflash::Problem call;
    isoflash::Backward tensors;
  };
  std::string name_, plain_;
  std::array<InputSet, kInputSets> sets_;
  std::unique_ptr<isoflash::Plan> plan_;
  isoflash::Workspace workspace_;
};

struct Measurement {
  Subject* subject = nullptr;
  Direction direction = Direction::forward;
  std::vector<double> seconds;  // of every timed run

  double median() const;
  double fastest() const;
  double slowest() const;
  double gflops() const { return subject->useful_flops(direction) / median() * 1e-9; }
};

struct TimingRules {
  int min_runs = 15;
  double min_seconds = 0.5;  // of timed runs, for each measurement
};

// Rounds over all measurements, one run of each that is not yet done, after one untimed round.
void measure(std::vector<Measurement>& measurements, const TimingRules& rules,
             const std::function<void(const std::string& state)>& progress);

}  // namespace iso::tool
