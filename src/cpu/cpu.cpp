#include "cpu/cpu.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/processor.h"
#include "cpu/thread_pool.h"
#include "cpu/tiling.h"

namespace iso::cpu {

// One table per level, defined by cpu/level/level.cpp in the level's namespace. The build defines ISO_CPU_LEVELS as
// ISO_CPU_LEVEL(scalar) ISO_CPU_LEVEL(baseline) ..., lowest first.
#define ISO_CPU_LEVEL(name)        \
  namespace cpu_##name {           \
    extern const Kernels kKernels; \
  }
ISO_CPU_LEVELS
#undef ISO_CPU_LEVEL

namespace {

constexpr Level kLevels[] = {
#define ISO_CPU_LEVEL(name) {#name, [] { return processor_runs(#name); }, &cpu_##name::kKernels},
    ISO_CPU_LEVELS
#undef ISO_CPU_LEVEL
};

struct CpuState : BackendState {
  const Kernels* kernels = nullptr;
  std::vector<i64> tile_begin;  // see Params
  i64 max_seqlen_kv = 0;
  bool intervals = false;
  i64 forward_stride = 0, backward_stride = 0;  // scratch bytes per worker
  i64 partial_size = 0;
};

Params params_of(const Plan& plan, void* workspace, i64 stride) {
  const auto& state = static_cast<const CpuState&>(*plan.state);
  return {.problem = plan.problem,
          .sequences = plan.sequences.data(),
          .tile_begin = state.tile_begin.data(),
          .max_seqlen_kv = state.max_seqlen_kv,
          .intervals = state.intervals,
          .scratch = static_cast<char*>(workspace),
          .scratch_stride = stride,
          .num_splits = plan.num_splits,
          .partials = static_cast<char*>(workspace) + stride * plan.num_threads,
          .partial_size = state.partial_size,
          .parallel = parallel_on_pool(plan.num_threads)};
}

}  // namespace

std::span<const Level> levels() { return kLevels; }

const Level& level_in_use(const char** rejected) {
  const char* const wanted = std::getenv("ISOFLASH_CPU_LEVEL");
  if (wanted != nullptr && *wanted != '\0') {
    for (const Level& level : kLevels)
      if (std::strcmp(level.name, wanted) == 0 && level.available()) return level;
    if (rejected != nullptr) *rejected = wanted;
  }
  const auto best = std::find_if(std::rbegin(kLevels), std::rend(kLevels), [](const Level& l) { return l.available(); });
  return best == std::rend(kLevels) ? kLevels[0] : *best;
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void prepare(Plan& plan) {
  const Level& level = level_in_use();
  auto state = std::make_unique<CpuState>();
  state->kernels = level.kernels;
  state->tile_begin.reserve(plan.sequences.size() + 1);
  state->tile_begin.push_back(0);
  // Without query heads there are no query tiles, however many KV heads the (then empty) k has.
  const i64 heads = plan.problem.num_heads_q == 0 ? 0 : plan.problem.num_heads_kv;
  for (const Sequence& s : plan.sequences) {
    state->tile_begin.push_back(state->tile_begin.back() + heads * num_query_tiles(plan.problem, s));
    state->max_seqlen_kv = std::max<i64>(state->max_seqlen_kv, s.seqlen_kv);
    state->intervals |= s.intervals.data != nullptr;
  }
  state->forward_stride = level.kernels->forward_scratch(plan.problem, state->intervals, state->max_seqlen_kv);
  state->backward_stride = level.kernels->backward_scratch(plan.problem, state->intervals, state->max_seqlen_kv);
  state->partial_size = level.kernels->partial_size(plan.problem);
  i64 forward_size = state->forward_stride * plan.num_threads;
  if (plan.num_splits > 1) forward_size += state->tile_begin.back() * plan.num_splits * state->partial_size;
  plan.forward_workspace = static_cast<std::size_t>(forward_size);
  plan.backward_workspace = static_cast<std::size_t>(state->backward_stride * plan.num_threads);
  plan.kernel = std::string("cpu:") + level.name;
  plan.state = std::move(state);
  ensure_workers(plan.num_threads - 1);
}

void forward(const Plan& plan, const ForwardTensors& tensors, void* workspace) {
  const auto& state = static_cast<const CpuState&>(*plan.state);
  state.kernels->forward(params_of(plan, workspace, state.forward_stride), tensors);
}

void backward(const Plan& plan, const BackwardTensors& tensors, void* workspace) {
  const auto& state = static_cast<const CpuState&>(*plan.state);
  state.kernels->backward(params_of(plan, workspace, state.backward_stride), tensors);
}

}  // namespace iso::cpu
