#include "run_batch.h"

#include <algorithm>
#include <chrono>

#include <fmt/core.h>

#include "commands.h"
#include "terminal.h"
#include "usage_error.h"

namespace iso::tool {
namespace {

template <class T>
T value_of(isoflash::Result<T> result) {
  if (!result) throw_usage_error(result.error().id(), result.error().message());
  return std::move(*result);
}

// Median seconds of `repeat` calls, after one to warm up.
template <class Call>
double median_seconds(const char* what, int repeat, const Call& call) {
  Progress progress(what);
  std::vector<double> seconds;
  for (int n = 0; n <= repeat; ++n) {
    progress.show(n == 0 ? "warming up" : fmt::format("{} of {}", n, repeat));
    const auto begin = std::chrono::steady_clock::now();
    const isoflash::Result<void> done = call();
    if (!done) throw_usage_error(done.error().id(), done.error().message());
    if (n > 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  return seconds[seconds.size() / 2];
}

// What --backward needs of a batch: keys whose gradients have a place, and dout.
Expected<void> check_backward(const std::string& path, const Batch& batch) {
  if (batch.paged()) return raise(errors::BackwardOfPagedKeys{});
  if (batch.has_new_keys()) return raise(errors::BackwardOfNewKeys{});
  if (batch.find(batch_name::kDout) == nullptr)
    return raise(
        errors::FileTensorMissing{.path = path, .tensor = "dout (which --backward needs)", .available = batch.names()});
  return {};
}

}  // namespace

Gradients::Gradients(const isoflash::Problem& call, isoflash::Backward& tensors) {
  const auto add = [](const isoflash::Tensor& of, TensorData& memory, isoflash::Tensor& gradient) {
    if (of.rank == 0) return;
    memory = memory_for(of);
    gradient = view(&memory);
  };
  add(call.q, dq, tensors.dq);
  add(call.k, dk, tensors.dk);
  add(call.v, dv, tensors.dv);
  add(call.sink, dsink, tensors.dsink);
  add(call.bias, dbias, tensors.dbias);
}

double forward_flops(const isoflash::Problem& call, i64 visible_pairs) {
  const int last = call.q.rank - 1;
  const i64 dims = call.q.shape[last] + call.v.shape[call.v.rank - 1];
  return 2.0 * static_cast<double>(dims * call.q.shape[last - 1]) * static_cast<double>(visible_pairs);
}

isoflash::Backward backward_inputs(const isoflash::Problem& call) {
  isoflash::Backward tensors;
  tensors.q = call.q;
  tensors.k = call.k;
  tensors.v = call.v;
  tensors.out = call.out;
  tensors.lse = call.lse;
  tensors.sink = call.sink;
  tensors.bias = call.bias;
  return tensors;
}

RunResult run_batch(const std::string& path, const Batch& batch, const RunOptions& options) {
  RunResult result;
  isoflash::Problem& call = result.call;
  call = value_or_usage_error(library_problem(path, batch));
  if (options.backward) value_or_usage_error(check_backward(path, batch));
  result.out = memory_for(call.out);
  result.lse = memory_for(call.lse);
  call.out = view(&result.out);
  call.lse = view(&result.lse);

  const isoflash::PlanOptions plan_options{
      .num_threads = options.threads, .backend = options.backend.c_str(), .num_splits = options.splits};
  const isoflash::Plan plan = value_of(isoflash::Plan::create(call, plan_options));
  result.kernel = plan.kernel();
  result.visible_pairs = plan.visible_pairs();
  result.forward_workspace = plan.forward_workspace_size();
  result.forward_flops = forward_flops(call, result.visible_pairs);

  isoflash::Workspace workspace;
  result.forward_seconds = median_seconds("forward", options.repeat, [&] { return plan.forward(call, workspace); });
  result.tensors = backward_inputs(call);
  if (!options.backward) return result;

  result.tensors.dout = view(batch.find(batch_name::kDout));
  result.gradients = Gradients(call, result.tensors);
  result.backward_workspace = plan.backward_workspace_size();
  result.backward_flops = 2.5 * result.forward_flops;
  result.backward_seconds =
      median_seconds("backward", options.repeat, [&] { return plan.backward(result.tensors, workspace); });
  return result;
}

}  // namespace iso::tool
