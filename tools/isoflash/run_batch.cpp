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

TensorData like(const isoflash::Tensor& t) {
  return TensorData(static_cast<DType>(t.dtype), std::vector<i64>(t.shape, t.shape + t.rank));
}

}  // namespace

RunResult run_batch(const std::string& path, const Batch& batch, const RunOptions& options) {
  RunResult result;
  isoflash::Problem& call = result.call;
  call = value_or_usage_error(library_problem(path, batch));
  const TensorData* const dout = batch.find(batch_name::kDout);
  if (options.backward && dout == nullptr) {
    std::string names;
    for (const auto& [name, tensor] : batch.tensors) names += (names.empty() ? "" : ", ") + name;
    value_or_usage_error(Expected<void>(
        raise(errors::FileTensorMissing{.path = path, .tensor = "dout (which --backward needs)", .available = names})));
  }

  // out is (..., num_heads_q, head_dim_v); lse is (batch, num_heads_q, seqlen_q), or (num_heads_q, total) when packed.
  const int head_axis = call.q.rank - 2;
  std::vector<i64> out_shape(call.q.shape, call.q.shape + call.q.rank);
  out_shape.back() = call.v.shape[call.v.rank - 1];
  std::vector<i64> lse_shape{call.q.shape[head_axis], call.q.shape[head_axis - 1]};
  if (!batch.packed()) lse_shape.insert(lse_shape.begin(), call.q.shape[0]);
  result.out = TensorData(static_cast<DType>(call.q.dtype), out_shape);
  result.lse = TensorData(DType::f32, lse_shape);
  call.out = view(&result.out);
  call.lse = view(&result.lse);

  const isoflash::PlanOptions plan_options{.num_threads = options.threads, .backend = options.backend.c_str()};
  const isoflash::Plan plan = value_of(isoflash::Plan::create(call, plan_options));
  result.kernel = plan.kernel();
  result.visible_pairs = plan.visible_pairs();
  result.forward_workspace = plan.forward_workspace_size();
  result.forward_flops = 2.0 *
                         static_cast<double>((call.q.shape[head_axis + 1] + out_shape.back()) * call.q.shape[head_axis]) *
                         static_cast<double>(result.visible_pairs);

  isoflash::Workspace workspace;
  result.forward_seconds = median_seconds("forward", options.repeat, [&] { return plan.forward(call, workspace); });
  result.tensors = {.q = call.q,
                    .k = call.k,
                    .v = call.v,
                    .out = call.out,
                    .lse = call.lse,
                    .dout = {},
                    .dlse = {},
                    .dq = {},
                    .dk = {},
                    .dv = {}};
  if (!options.backward) return result;

  result.dq = like(call.q);
  result.dk = like(call.k);
  result.dv = like(call.v);
  result.tensors.dout = view(dout);
  result.tensors.dq = view(&result.dq);
  result.tensors.dk = view(&result.dk);
  result.tensors.dv = view(&result.dv);
  result.backward_workspace = plan.backward_workspace_size();
  result.backward_flops = 2.5 * result.forward_flops;
  result.backward_seconds =
      median_seconds("backward", options.repeat, [&] { return plan.backward(result.tensors, workspace); });
  return result;
}

}  // namespace iso::tool
