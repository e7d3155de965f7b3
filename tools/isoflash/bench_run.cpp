#include "bench_run.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include <fmt/core.h>

#include "commands.h"
#include "usage_error.h"
#include "verify.h"

namespace iso::tool {
namespace {

template <class T>
T value_or_throw(isoflash::Result<T> result) {
  if (!result) throw_usage_error(result.error().id(), result.error().message());
  return std::move(*result);
}
void value_or_throw(const isoflash::Result<void>& result) {
  if (!result) throw_usage_error(result.error().id(), result.error().message());
}

}  // namespace

const char* direction_name(Direction direction) { return direction == Direction::forward ? "fwd" : "bwd"; }

Subject::Subject(std::string name, std::string plain, std::array<Batch, kInputSets> inputs, isoflash::PlanOptions options)
    : name_(std::move(name)), plain_(std::move(plain)) {
  for (int n = 0; n < kInputSets; ++n) {
    InputSet& set = sets_[n];
    set.inputs = std::move(inputs[n]);
    set.call = value_or_usage_error(library_problem(name_, set.inputs));
    set.out = memory_for(set.call.out);
    set.lse = memory_for(set.call.lse);
    set.call.out = view(&set.out);
    set.call.lse = view(&set.lse);
    set.tensors = backward_inputs(set.call);
    if (set.inputs.paged() || set.inputs.has_new_keys()) continue;
    const TensorData *dout = set.inputs.find(batch_name::kDout), *q = set.inputs.find(batch_name::kQ);
    if (dout == nullptr && q->shape() == set.out.shape()) dout = q;
    if (dout == nullptr) continue;
    set.tensors.dout = view(dout);
    set.gradients = Gradients(set.call, set.tensors);
  }
  plan_ = std::make_unique<isoflash::Plan>(value_or_throw(isoflash::Plan::create(sets_[0].call, options)));
  workspace_.reserve(
      std::max(plan_->forward_workspace_size(), has_backward() ? plan_->backward_workspace_size() : std::size_t{0}));
}

std::size_t Subject::workspace_bytes(Direction direction) const {
  return direction == Direction::forward ? plan_->forward_workspace_size() : plan_->backward_workspace_size();
}

double Subject::useful_flops(Direction direction) const {
  const double forward = forward_flops(sets_[0].call, visible_pairs());
  return direction == Direction::forward ? forward : 2.5 * forward;
}

void Subject::run(Direction direction, int set) {
  const InputSet& s = sets_[set];
  if (direction == Direction::forward)
    value_or_throw(plan_->forward(s.call, workspace_));
  else
    value_or_throw(plan_->backward(s.tensors, workspace_));
}

std::string Subject::check(bool backward, const std::function<void(i64 done, i64 total)>& progress) {
  InputSet& s = sets_[0];
  run(Direction::forward, 0);
  isoflash::Backward tensors = s.tensors;
  if (backward)
    run(Direction::backward, 0);
  else
    tensors.dq = tensors.dk = tensors.dv = tensors.dsink = tensors.dbias = {};
  for (const Verified& output : verify(s.call, tensors, VerifyMode::sample, progress))
    if (!output.finding.empty()) return output.finding;
  return {};
}

double Measurement::median() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}
double Measurement::fastest() const { return *std::min_element(seconds.begin(), seconds.end()); }
double Measurement::slowest() const { return *std::max_element(seconds.begin(), seconds.end()); }

void measure(std::vector<Measurement>& measurements, const TimingRules& rules,
             const std::function<void(const std::string& state)>& progress) {
  using Clock = std::chrono::steady_clock;
  // Untimed: page in every set, and leave out and lse for the backward.
  for (const Measurement& m : measurements)
    for (int set = 0; set < kInputSets; ++set) {
      m.subject->run(Direction::forward, set);
      if (m.direction == Direction::backward) m.subject->run(Direction::backward, set);
    }
  const auto done = [&](const Measurement& m) {
    return static_cast<int>(m.seconds.size()) >= rules.min_runs &&
           std::accumulate(m.seconds.begin(), m.seconds.end(), 0.0) >= rules.min_seconds;
  };
  for (int round = 0;; ++round) {
    std::size_t left = 0;
    for (Measurement& m : measurements) {
      if (done(m)) continue;
      ++left;
      const auto start = Clock::now();
      m.subject->run(m.direction, round % kInputSets);
      m.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    if (left == 0) return;
    progress(fmt::format("round {}, {} of {} measurements left", round + 1, left, measurements.size()));
  }
}

}  // namespace iso::tool
