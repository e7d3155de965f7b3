// Problem descriptors that are almost right: a small valid problem with a few fields replaced. Whatever the library makes of
// it, it must say so with an error of the catalogue, or compute inside the tensors: their memory ends exactly where the
// descriptors say, so AddressSanitizer sees any step beyond.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "isoflash/isoflash.h"

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz_attention: %s\n", what);
  std::abort();
}

struct Deleter {
  void operator()(isoflash_error* error) const { isoflash_error_destroy(error); }
  void operator()(isoflash_plan* plan) const { isoflash_plan_destroy(plan); }
  void operator()(void* memory) const { std::free(memory); }
};

constexpr int64_t kOddNumbers[] = {
    INT64_MIN,  INT64_MIN + 1, -4294967296, -2147483649,         -2,       -1, 0, 1, 2, 7, 255,
    2147483647, 2147483648,    4294967296,  4611686018427387904, INT64_MAX};

int64_t odd_number(FuzzedDataProvider& input) {
  return input.ConsumeBool() ? input.PickValueInArray(kOddNumbers) : input.ConsumeIntegralInRange<int64_t>(-8, 40);
}

// Exactly the bytes that `tensor` reaches; its data pointer is set to element [0, 0, ...]. False if that is too much to give.
bool give_memory(isoflash_tensor& tensor, std::vector<std::unique_ptr<char[]>>& memory) {
  if (tensor.rank < 0 || tensor.rank > 4) return true;
  int64_t low = 0, high = 0;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.shape[axis] <= 0) return true;
    if (tensor.shape[axis] > 4096 || std::abs(static_cast<double>(tensor.strides[axis])) > 65536) return false;
    const int64_t reach = (tensor.shape[axis] - 1) * tensor.strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t size = tensor.dtype == ISOFLASH_BF16 || tensor.dtype == ISOFLASH_F16 ? 2 : 4;
  if (high - low > (1 << 20)) return false;
  memory.push_back(std::make_unique<char[]>(static_cast<size_t>((high - low + 1) * size)));
  tensor.data = memory.back().get() - low * size;
  return true;
}

// int32 values for a length array.
void give_lengths(FuzzedDataProvider& input, isoflash_tensor& tensor, int64_t count, int32_t bound,
                  std::vector<std::unique_ptr<char[]>>& memory) {
  const int64_t shape[4] = {count, 0, 0, 0};
  isoflash_tensor_contiguous(&tensor, nullptr, ISOFLASH_I32, 1, shape);
  give_memory(tensor, memory);
  auto* values = static_cast<int32_t*>(tensor.data);
  for (int64_t n = 0; n < count; ++n) values[n] = input.ConsumeIntegralInRange<int32_t>(-1, bound + 1);
}

void spoil(FuzzedDataProvider& input, isoflash_tensor& tensor) {
  switch (input.ConsumeIntegralInRange(0, 4)) {
    case 0: tensor.shape[input.ConsumeIntegralInRange(0, 3)] = odd_number(input); break;
    case 1: tensor.strides[input.ConsumeIntegralInRange(0, 3)] = odd_number(input); break;
    case 2: tensor.dtype = input.ConsumeIntegralInRange<int32_t>(-1, 7); break;
    case 3: tensor.rank = input.ConsumeIntegralInRange<int32_t>(-1, 6); break;
    default: tensor.device_type = input.ConsumeIntegralInRange<int32_t>(0, 3); break;
  }
}

void spoil(FuzzedDataProvider& input, isoflash_problem& problem, int64_t batch,
           std::vector<std::unique_ptr<char[]>>& memory) {
  isoflash_tensor* const tensors[] = {&problem.q, &problem.k, &problem.v, &problem.out, &problem.lse};
  isoflash_per_sequence* const parts[] = {
      &problem.mask.num_context, &problem.mask.history_len,     &problem.mask.num_candidates, &problem.mask.history_begin,
      &problem.mask.history_end, &problem.mask.candidate_begin, &problem.mask.query_offset};
  switch (input.ConsumeIntegralInRange(0, 9)) {
    case 0:
    case 1: spoil(input, *input.PickValueInArray(tensors)); break;
    case 2: input.PickValueInArray(parts)->value = odd_number(input); break;
    case 3: give_lengths(input, input.PickValueInArray(parts)->values, batch, 12, memory); break;
    case 4: give_lengths(input, input.ConsumeBool() ? problem.seqused_q : problem.seqused_kv, batch, 12, memory); break;
    case 5: problem.mask.history_kind = input.ConsumeIntegralInRange<int32_t>(-1, 4); break;
    case 6: problem.mask.window_left = odd_number(input), problem.mask.window_right = odd_number(input); break;
    case 7: problem.mask.candidate_group_size = odd_number(input); break;
    case 8:
      problem.softcap_kind = input.ConsumeIntegralInRange<int32_t>(-1, 3);
      problem.softcap = input.ConsumeFloatingPoint<double>();
      break;
    default:
      (input.ConsumeBool() ? problem.max_seqlen_q : problem.max_seqlen_kv) = odd_number(input);
      problem.scale = input.ConsumeFloatingPoint<double>();
      break;
  }
}

void require_told(isoflash_status status, const isoflash_error* error) {
  require(isoflash_error_id(error) == status, "the status is not the error's id");
  require(std::strlen(isoflash_error_message(error)) > 0, "an error without a message");
  require(std::strlen(isoflash_error_json(error)) > 2, "an error without JSON");
  require(isoflash_error_catalogue_json(status) != nullptr, "an error that is not in the catalogue");
  require(status / 1000 != 9, "an internal error");
}

std::unique_ptr<void, Deleter> workspace(size_t size) {
  return std::unique_ptr<void, Deleter>(std::aligned_alloc(64, (size + 127) / 64 * 64));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider input(bytes, size);
  std::vector<std::unique_ptr<char[]>> memory;
  const bool packed = input.ConsumeBool();
  const int64_t batch = input.ConsumeIntegralInRange(1, 3);
  const int64_t rows_q = input.ConsumeIntegralInRange(0, 12), rows_kv = input.ConsumeIntegralInRange(0, 12);
  const int64_t heads_kv = input.ConsumeIntegralInRange(1, 2), heads_q = heads_kv * input.ConsumeIntegralInRange(1, 3);
  const int64_t dim = input.ConsumeIntegralInRange(1, 20), dim_v = input.ConsumeIntegralInRange(1, 20);
  const auto dtype = input.PickValueInArray({ISOFLASH_F32, ISOFLASH_BF16, ISOFLASH_F16});

  isoflash_problem problem;
  isoflash_problem_init(&problem);
  const auto describe = [&](isoflash_tensor& tensor, int64_t rows, int64_t heads, int64_t width) {
    const int64_t dense[4] = {batch, rows, heads, width}, flat[4] = {batch * rows, heads, width, 0};
    isoflash_tensor_contiguous(&tensor, nullptr, dtype, packed ? 3 : 4, packed ? flat : dense);
  };
  describe(problem.q, rows_q, heads_q, dim);
  describe(problem.k, rows_kv, heads_kv, dim);
  describe(problem.v, rows_kv, heads_kv, dim_v);
  describe(problem.out, rows_q, heads_q, dim_v);
  const int64_t dense_lse[4] = {batch, heads_q, rows_q, 0}, packed_lse[4] = {heads_q, batch * rows_q, 0, 0};
  isoflash_tensor_contiguous(&problem.lse, nullptr, ISOFLASH_F32, packed ? 2 : 3, packed ? packed_lse : dense_lse);
  if (packed) {
    const auto cumulate = [&](isoflash_tensor& lengths, int64_t rows) {
      give_lengths(input, lengths, batch + 1, static_cast<int32_t>(batch * rows), memory);
      auto* values = static_cast<int32_t*>(lengths.data);
      if (input.ConsumeProbability<float>() > 0.1f) {
        std::sort(values, values + batch + 1);
        values[0] = 0, values[batch] = static_cast<int32_t>(batch * rows);
        for (int64_t n = 1; n < batch; ++n) values[n] = std::clamp(values[n], 0, values[batch]);
      }
    };
    cumulate(problem.cu_seqlens_q, rows_q);
    cumulate(problem.cu_seqlens_kv, rows_kv);
  }
  for (int changes = input.ConsumeIntegralInRange(0, 4); changes > 0; --changes) spoil(input, problem, batch, memory);

  const std::unique_ptr<isoflash_error, Deleter> error(isoflash_error_create());
  isoflash_plan_options options;
  isoflash_plan_options_init(&options);
  options.num_threads = 1;
  isoflash_plan* created = nullptr;
  const isoflash_status planned = isoflash_plan_create(&problem, &options, &created, error.get());
  const std::unique_ptr<isoflash_plan, Deleter> plan(created);
  if (planned != ISOFLASH_OK) {
    require(created == nullptr, "a refused problem left a plan");
    require_told(planned, error.get());
    return 0;
  }

  for (isoflash_tensor* tensor : {&problem.q, &problem.k, &problem.v, &problem.out, &problem.lse})
    if (!give_memory(*tensor, memory)) return 0;
  isoflash_forward_args forward;
  isoflash_forward_args_init(&forward);
  forward.q = problem.q, forward.k = problem.k, forward.v = problem.v, forward.out = problem.out, forward.lse = problem.lse;
  forward.workspace_size = isoflash_forward_workspace_size(plan.get());
  const auto forward_memory = workspace(forward.workspace_size);
  forward.workspace = forward_memory.get();
  const isoflash_status ran = isoflash_forward(plan.get(), &forward, error.get());
  require(ran == ISOFLASH_OK, "the plan accepts what its forward refuses");

  isoflash_backward_args backward;
  isoflash_backward_args_init(&backward);
  backward.q = problem.q, backward.k = problem.k, backward.v = problem.v, backward.out = problem.out;
  backward.lse = problem.lse, backward.dout = problem.out;
  const auto gradient = [&](isoflash_tensor& d, const isoflash_tensor& of) {
    isoflash_tensor_contiguous(&d, nullptr, static_cast<isoflash_dtype>(of.dtype), of.rank, of.shape);
    return give_memory(d, memory);
  };
  if (!gradient(backward.dq, problem.q) || !gradient(backward.dk, problem.k) || !gradient(backward.dv, problem.v)) return 0;
  backward.workspace_size = isoflash_backward_workspace_size(plan.get());
  const auto backward_memory = workspace(backward.workspace_size);
  backward.workspace = backward_memory.get();
  const isoflash_status returned = isoflash_backward(plan.get(), &backward, error.get());
  if (returned != ISOFLASH_OK) require_told(returned, error.get());
  return 0;
}
