// isoflash.h implemented: errors, plans and their calls, backends (merging is in merge.cpp, block lists in block_lists.cpp).
// Each call: read the caller's structs, validate, act, and turn whatever went wrong into a status and an isoflash_error.
#include <limits>
#include <new>
#include <string>

#include "api/boundary.h"
#include "backend/backend.h"
#include "backend/cpu_backend.h"
#include "errors/catalogue.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"
#include "plan/plan.h"
#include "validate/propagate.h"
#include "validate/tensor.h"
#include "validate/validate.h"

struct isoflash_plan {
  iso::Plan plan;
};

namespace iso {
namespace {

// The enums of core/ and of the C ABI are the same numbers, so that no switch translates them.
static_assert(static_cast<int>(DType::f32) == ISOFLASH_F32 && static_cast<int>(DType::bf16) == ISOFLASH_BF16 &&
              static_cast<int>(DType::f16) == ISOFLASH_F16 && static_cast<int>(DType::f64) == ISOFLASH_F64 &&
              static_cast<int>(DType::i32) == ISOFLASH_I32 && static_cast<int>(DType::i64) == ISOFLASH_I64);
static_assert(static_cast<int>(DeviceType::cpu) == ISOFLASH_CPU && static_cast<int>(DeviceType::cuda) == ISOFLASH_CUDA);
static_assert(static_cast<int>(HistoryKind::bidirectional) == ISOFLASH_HISTORY_BIDIRECTIONAL &&
              static_cast<int>(HistoryKind::causal) == ISOFLASH_HISTORY_CAUSAL &&
              static_cast<int>(HistoryKind::window) == ISOFLASH_HISTORY_WINDOW);
static_assert(static_cast<int>(SoftcapKind::none) == ISOFLASH_SOFTCAP_NONE &&
              static_cast<int>(SoftcapKind::tanh) == ISOFLASH_SOFTCAP_TANH &&
              static_cast<int>(SoftcapKind::soft_sign) == ISOFLASH_SOFTCAP_SOFT_SIGN);

// --- structs that may grow -------------------------------------------------------------------------------------------

// Sizes at first, which every caller has; and sizes today. A later version adds fields at the end, changes today's sizes
// and leaves the first ones as they are.
constexpr std::size_t kFirstOptionsSize = 16, kFirstForwardSize = 472, kFirstBackwardSize = 912;
static_assert(sizeof(isoflash_plan_options) == 24 && sizeof(isoflash_forward_args) == 824 &&
              sizeof(isoflash_backward_args) == 1264);

// --- plans -----------------------------------------------------------------------------------------------------------

constexpr i32 kMaxThreads = 1024, kMaxSplits = 1024;

Expected<Plan> plan_without_backend(const isoflash_problem* problem) {
  const auto descriptor = read_problem(problem);
  if (!descriptor) return tl::unexpected(descriptor.error());
  auto valid = validate_problem(*descriptor);
  if (!valid) return tl::unexpected(std::move(valid).error());
  return make_plan(valid->problem, std::move(valid->sequences), std::move(valid->mask_arrays), valid->layout);
}

Expected<Plan> create_plan(const isoflash_problem* problem, const isoflash_plan_options* options) {
  isoflash_plan_options chosen;
  isoflash_plan_options_init(&chosen);
  if (options != nullptr) {
    const auto read = read_struct(options, "isoflash_plan_options", kFirstOptionsSize, isoflash_plan_options_init);
    if (!read) return tl::unexpected(read.error());
    chosen = *read;
  }
  if (chosen.num_threads < 0 || chosen.num_threads > kMaxThreads)
    return raise(errors::NumThreads{.got = chosen.num_threads, .max = kMaxThreads});
  if (chosen.num_splits < 0 || chosen.num_splits > kMaxSplits)
    return raise(errors::NumSplits{.got = chosen.num_splits, .max = kMaxSplits});
  if (chosen.reserved0 != 0)
    return raise(errors::ReservedField{.field = "plan_options.reserved0", .got = chosen.reserved0});
  auto plan = plan_without_backend(problem);
  if (!plan) return plan;
  plan->num_threads = chosen.num_threads;
  plan->num_splits = chosen.num_splits;
  ISO_RETURN_IF_ERROR(choose_backend(*plan, chosen.backend == nullptr ? "auto" : chosen.backend));
  return plan;
}

}  // namespace
}  // namespace iso

using namespace iso;

extern "C" {

void isoflash_tensor_contiguous(isoflash_tensor* tensor, void* data, isoflash_dtype dtype, int32_t rank,
                                const int64_t* shape) {
  if (tensor == nullptr) return;
  *tensor = {};
  tensor->data = data;
  tensor->dtype = dtype;
  tensor->rank = rank;  // one that is out of range is refused where the tensor is used
  tensor->device_type = ISOFLASH_CPU;
  if (rank < 1 || rank > 4 || shape == nullptr) return;
  int64_t stride = 1;
  for (int32_t axis = rank - 1; axis >= 0; --axis) {
    tensor->shape[axis] = shape[axis];
    tensor->strides[axis] = stride;
    if (shape[axis] > 1 && __builtin_mul_overflow(stride, shape[axis], &stride))
      stride = std::numeric_limits<int64_t>::max();
  }
}

void isoflash_problem_init(isoflash_problem* problem) {
  if (problem == nullptr) return;
  *problem = {};
  problem->struct_size = sizeof *problem;
  problem->max_seqlen_q = problem->max_seqlen_kv = ISOFLASH_DEFAULT;
  problem->scale = std::numeric_limits<double>::quiet_NaN();
  isoflash_mask& mask = problem->mask;
  mask.window_left = mask.window_right = ISOFLASH_UNLIMITED;
  mask.candidate_group_size = 1;
  for (isoflash_per_sequence* part : {&mask.num_context, &mask.history_len, &mask.num_candidates, &mask.history_begin,
                                      &mask.history_end, &mask.candidate_begin, &mask.query_offset})
    part->value = ISOFLASH_DEFAULT;
}

void isoflash_plan_options_init(isoflash_plan_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
}

void isoflash_forward_args_init(isoflash_forward_args* args) {
  if (args == nullptr) return;
  *args = {};
  args->struct_size = sizeof *args;
}

void isoflash_backward_args_init(isoflash_backward_args* args) {
  if (args == nullptr) return;
  *args = {};
  args->struct_size = sizeof *args;
}

isoflash_error* isoflash_error_create(void) { return new (std::nothrow) isoflash_error; }
void isoflash_error_destroy(isoflash_error* error) { delete error; }
isoflash_status isoflash_error_id(const isoflash_error* error) { return error == nullptr ? ISOFLASH_OK : error->id; }
const char* isoflash_error_name(const isoflash_error* error) { return error == nullptr ? "" : error->name.c_str(); }
const char* isoflash_error_message(const isoflash_error* error) { return error == nullptr ? "" : error->message.c_str(); }
const char* isoflash_error_json(const isoflash_error* error) { return error == nullptr ? "" : error->json.c_str(); }

const char* isoflash_error_catalogue_json(isoflash_status id) {
  try {
    const std::string& text = catalogue_json(id);
    return text.empty() ? nullptr : text.c_str();
  } catch (...) {
    return nullptr;
  }
}

const char* isoflash_error_catalogue_markdown(isoflash_status id) {
  try {
    const std::string& text = catalogue_markdown(id);
    return text.empty() ? nullptr : text.c_str();
  } catch (...) {
    return nullptr;
  }
}

isoflash_status isoflash_error_next(isoflash_status id) {
  try {
    for (const CatalogueEntry& entry : catalogue())
      if (entry.id > id) return entry.id;
  } catch (...) {}
  return 0;
}

isoflash_status isoflash_plan_create(const isoflash_problem* problem, const isoflash_plan_options* options,
                                     isoflash_plan** plan, isoflash_error* error) {
  static const char kFunction[] = "isoflash_plan_create";
  if (plan != nullptr) *plan = nullptr;
  return guarded(error, kFunction, [&]() -> Expected<void> {
    if (problem == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "problem"});
    if (plan == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "plan"});
    auto created = create_plan(problem, options);
    if (!created) return tl::unexpected(std::move(created).error());
    *plan = new isoflash_plan{std::move(*created)};
    return {};
  });
}

void isoflash_plan_destroy(isoflash_plan* plan) { delete plan; }

const char* isoflash_plan_kernel(const isoflash_plan* plan) { return plan == nullptr ? "" : plan->plan.kernel.c_str(); }
int64_t isoflash_plan_visible_pairs(const isoflash_plan* plan) { return plan == nullptr ? 0 : plan->plan.visible_pairs; }
size_t isoflash_forward_workspace_size(const isoflash_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.forward_workspace;
}
size_t isoflash_backward_workspace_size(const isoflash_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.backward_workspace;
}

isoflash_status isoflash_forward(const isoflash_plan* plan, const isoflash_forward_args* args, isoflash_error* error) {
  static const char kFunction[] = "isoflash_forward";
  return guarded(error, kFunction, [&]() -> Expected<void> {
    if (plan == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "plan"});
    if (args == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "args"});
    const auto a = read_struct(args, "isoflash_forward_args", kFirstForwardSize, isoflash_forward_args_init);
    if (!a) return tl::unexpected(a.error());
    const Plan& p = plan->plan;
    const auto tensors = validate_forward(p.problem, p.layout, *a, p.forward_workspace);
    if (!tensors) return tl::unexpected(tensors.error());
    if (!has_elements(tensors->out)) return {};  // and so has lse; an empty tensor may still have any number of heads
    return p.backend->forward(p, *tensors, {a->workspace, a->workspace_size, a->stream});
  });
}

isoflash_status isoflash_backward(const isoflash_plan* plan, const isoflash_backward_args* args, isoflash_error* error) {
  static const char kFunction[] = "isoflash_backward";
  return guarded(error, kFunction, [&]() -> Expected<void> {
    if (plan == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "plan"});
    if (args == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "args"});
    const auto a = read_struct(args, "isoflash_backward_args", kFirstBackwardSize, isoflash_backward_args_init);
    if (!a) return tl::unexpected(a.error());
    const Plan& p = plan->plan;
    const auto tensors = validate_backward(p.problem, p.layout, *a, p.backward_workspace);
    if (!tensors) return tl::unexpected(tensors.error());
    const BackwardTensors& t = *tensors;
    if (!has_elements(t.dq) && !has_elements(t.dk) && !has_elements(t.dv) && !has_elements(t.dsink) &&
        !has_elements(t.dbias))
      return {};
    return p.backend->backward(p, *tensors, {a->workspace, a->workspace_size, a->stream});
  });
}

int32_t isoflash_backend_count(void) { return backend_count(); }

const char* isoflash_backend_name(int32_t index) {
  return index < 0 || index >= backend_count() ? nullptr : backend_at(index).name();
}

const char* isoflash_backend_why_not(int32_t index, const isoflash_problem* problem, isoflash_error* error) {
  static const char kFunction[] = "isoflash_backend_why_not";
  if (index < 0 || index >= backend_count() || error == nullptr) return nullptr;
  const isoflash_status status = guarded(error, kFunction, [&]() -> Expected<void> {
    if (problem == nullptr) return raise(errors::NullArgument{.function = kFunction, .argument = "problem"});
    const auto plan = plan_without_backend(problem);
    if (!plan) return tl::unexpected(plan.error());
    error->why_not = backend_at(index).why_not(*plan);
    return {};
  });
  return status == ISOFLASH_OK ? error->why_not.c_str() : error->message.c_str();
}

int32_t isoflash_cpu_level_count(void) { return cpu_level_count(); }

const char* isoflash_cpu_level_name(int32_t index) {
  return index < 0 || index >= cpu_level_count() ? nullptr : cpu_level_name(index);
}

int32_t isoflash_cpu_level_available(int32_t index) {
  return index >= 0 && index < cpu_level_count() && cpu_level_available(index);
}

const char* isoflash_cpu_level_in_use(void) { return cpu_level_in_use(); }

const char* isoflash_version(void) {
#define ISO_TEXT(number) #number
#define ISO_VERSION(major, minor, patch) ISO_TEXT(major) "." ISO_TEXT(minor) "." ISO_TEXT(patch)
  return ISO_VERSION(ISOFLASH_VERSION_MAJOR, ISOFLASH_VERSION_MINOR, ISOFLASH_VERSION_PATCH);
#undef ISO_VERSION
#undef ISO_TEXT
}

}  // extern "C"
