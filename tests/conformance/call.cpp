#include "conformance/call.h"

#include <algorithm>
#include <cstdlib>

namespace iso::conformance {
namespace {

constexpr const char* kLevelVariable = "ISOFLASH_CPU_LEVEL";

// Forces a CPU level while it lives. The library reads the variable when a plan is made.
class ForcedLevel {
 public:
  explicit ForcedLevel(const std::string& level) {
    if (level.empty()) return;
    const char* before = std::getenv(kLevelVariable);
    before_ = before == nullptr ? std::string() : before;
    setenv(kLevelVariable, level.c_str(), 1);
    forced_ = true;
  }
  ~ForcedLevel() {
    if (!forced_) return;
    if (before_.empty())
      unsetenv(kLevelVariable);
    else
      setenv(kLevelVariable, before_.c_str(), 1);
  }
  ForcedLevel(const ForcedLevel&) = delete;
  ForcedLevel& operator=(const ForcedLevel&) = delete;

 private:
  bool forced_ = false;
  std::string before_;
};

struct OwnedError {
  isoflash_error* error = isoflash_error_create();
  OwnedError() = default;
  ~OwnedError() { isoflash_error_destroy(error); }
  OwnedError(const OwnedError&) = delete;
  OwnedError& operator=(const OwnedError&) = delete;
  std::string message() const { return isoflash_error_message(error); }
};

isoflash_tensor descriptor(const Tensor& t) {
  isoflash_tensor out = {};
  if (!given(t)) return out;
  out.data = t.data;
  out.dtype = static_cast<i32>(t.dtype);
  out.rank = t.rank;
  std::copy(t.shape, t.shape + 4, out.shape);
  std::copy(t.strides, t.strides + 4, out.strides);
  out.device_type = ISOFLASH_CPU;
  return out;
}

isoflash_tensor descriptor(const std::vector<i32>& values) {
  isoflash_tensor out;
  const int64_t shape[] = {static_cast<int64_t>(values.size())};
  isoflash_tensor_contiguous(&out, const_cast<i32*>(values.data()), ISOFLASH_I32, 1, shape);
  return out;
}

isoflash_tensor descriptor(const IntArray& array) {
  isoflash_tensor out = {};
  const std::vector<int64_t> shape(array.shape.begin(), array.shape.end());
  if (array.given())
    isoflash_tensor_contiguous(&out, const_cast<i32*>(array.values.data()), ISOFLASH_I32, static_cast<i32>(shape.size()),
                               shape.data());
  return out;
}

// The problem of a case as the C ABI takes it, with the arrays it points to.
struct Descriptor {
  isoflash_problem problem;
  std::vector<std::vector<i32>> arrays;

  const std::vector<i32>& keep(const std::vector<i64>& values) { return arrays.emplace_back(values.begin(), values.end()); }
  void lengths(const std::vector<i64>& values, isoflash_tensor& field) {
    if (!values.empty()) field = descriptor(keep(values));
  }
  void cu_seqlens(const std::vector<i64>& lengths, isoflash_tensor& field) {
    std::vector<i64> cu = {0};
    for (const i64 length : lengths) cu.push_back(cu.back() + length);
    field = descriptor(keep(cu));
  }
  void per_sequence(const std::vector<i64>& values, isoflash_per_sequence& field) {
    if (values.size() == 1)
      field.value = values[0];
    else
      lengths(values, field.values);
  }

  void block_lists(const RandomBlocks& x, const CaseArrays& from) {
    isoflash_block_sparsity& blocks = problem.blocks;
    blocks.block_m = x.block_m;
    blocks.block_n = x.block_n;
    const auto describe = [](const ListArrays& list) {
      return isoflash_block_list{descriptor(list.counts), descriptor(list.indices)};
    };
    blocks.forward = {describe(from.forward[0]), describe(from.forward[1]), describe(from.forward[2])};
    blocks.backward = {describe(from.backward[0]), describe(from.backward[1]), describe(from.backward[2])};
    blocks.valid_upper = descriptor(from.valid_upper);
    blocks.valid_lower = descriptor(from.valid_lower);
  }

  Descriptor(const Case& c, const CaseArrays& arrays_of_case, const CaseTensors& tensors) {
    const BackwardTensors& at = tensors.at;
    isoflash_problem_init(&problem);
    problem.q = descriptor(at.q);
    problem.k = descriptor(at.k);
    problem.v = descriptor(at.v);
    problem.out = descriptor(at.out);
    problem.lse = descriptor(at.lse);
    problem.deterministic = 1;
    problem.k_new = descriptor(tensors.k_new);
    problem.v_new = descriptor(tensors.v_new);
    problem.sink = descriptor(at.sink);
    problem.bias = descriptor(at.bias);
    if (c.packed) cu_seqlens(c.seqlen_q, problem.cu_seqlens_q);
    if (c.kv_layout == KvLayout::packed) cu_seqlens(c.seqlen_kv, problem.cu_seqlens_kv);
    lengths(c.seqused_q, problem.seqused_q);
    lengths(c.seqused_kv, problem.seqused_kv);
    if (c.kv_layout == KvLayout::paged) {
      problem.block_table = descriptor(arrays_of_case.block_table);
      std::vector<i64> keys;
      for (i64 b = 0; b < c.batch; ++b) keys.push_back(value_of(c.seqlen_kv, b, 0));
      problem.seqused_kv = descriptor(keep(keys));
    }
    problem.row_intervals = descriptor(arrays_of_case.row_intervals);
    if (c.blocks.block_m > 0) block_lists(c.blocks, arrays_of_case);
    if (c.scale) problem.scale = *c.scale;
    problem.softcap_kind = static_cast<i32>(c.softcap_kind);
    problem.softcap = c.softcap;
    isoflash_mask& mask = problem.mask;
    mask.history_kind = static_cast<i32>(c.history_kind);
    if (c.history_kind == HistoryKind::window) {
      mask.window_left = c.window_left;
      mask.window_right = c.window_right;
    }
    mask.candidate_group_size = c.candidate_group_size;
    per_sequence(c.num_context, mask.num_context);
    per_sequence(c.history_len, mask.history_len);
    per_sequence(c.num_candidates, mask.num_candidates);
    per_sequence(c.history_begin, mask.history_begin);
    per_sequence(c.history_end, mask.history_end);
    per_sequence(c.candidate_begin, mask.candidate_begin);
    per_sequence(c.query_offset, mask.query_offset);
  }
};

// A workspace of NaN between guard bands.
struct Workspace {
  Memory memory;
  Tensor bytes;
  explicit Workspace(std::size_t size)
      : memory(DType::f32, static_cast<i64>((size + 3) / 4), true),
        bytes(memory.place({static_cast<i64>((size + 3) / 4)}, {1}, 0)) {}
};

std::vector<std::vector<unsigned char>> snapshot(const std::vector<Memory>& memories) {
  std::vector<std::vector<unsigned char>> bytes;
  for (const Memory& memory : memories) bytes.push_back(memory.bytes());
  return bytes;
}

// Runs `call` and adds what a wrong write would do to its verdict.
template <class Function>
std::string guarded(const CaseTensors& tensors, std::size_t workspace_size, Function&& call) {
  const auto before = snapshot(tensors.inputs);
  const Workspace workspace(workspace_size);
  if (std::string message = call(workspace.bytes.data); !message.empty()) return message;
  if (!workspace.memory.untouched_between_tensors()) return "wrote outside the workspace";
  if (snapshot(tensors.inputs) != before) return "modified an input";
  for (const Memory& memory : tensors.outputs)
    if (!memory.untouched_between_tensors()) return "wrote outside the outputs' elements";
  return {};
}

}  // namespace

tl::expected<Call, Refusal> Call::prepare(const Case& c, const CaseArrays& arrays, const CaseTensors& tensors,
                                          const Target& target, int num_threads) {
  const ForcedLevel forced(target.level);
  const Descriptor descriptor(c, arrays, tensors);
  OwnedError error;
  for (i32 n = 0; n < isoflash_backend_count(); ++n) {
    if (target.backend != isoflash_backend_name(n)) continue;
    const std::string why = isoflash_backend_why_not(n, &descriptor.problem, error.error);
    if (!why.empty()) return tl::unexpected(Refusal{isoflash_error_id(error.error) == ISOFLASH_OK, why});
  }
  isoflash_plan_options options;
  isoflash_plan_options_init(&options);
  options.backend = target.backend.c_str();
  options.num_threads = num_threads;
  options.num_splits = static_cast<i32>(c.num_splits);
  isoflash_plan* plan = nullptr;
  if (isoflash_plan_create(&descriptor.problem, &options, &plan, error.error) != ISOFLASH_OK)
    return tl::unexpected(Refusal{false, error.message()});
  return Call(plan);
}

std::string Call::forward(const CaseTensors& tensors) const {
  const std::size_t size = isoflash_forward_workspace_size(plan_.get());
  return guarded(tensors, size, [&](void* workspace) {
    isoflash_forward_args args;
    isoflash_forward_args_init(&args);
    args.q = descriptor(tensors.at.q);
    args.k = descriptor(tensors.at.k);
    args.v = descriptor(tensors.at.v);
    args.out = descriptor(tensors.at.out);
    args.lse = descriptor(tensors.at.lse);
    args.k_new = descriptor(tensors.k_new);
    args.v_new = descriptor(tensors.v_new);
    args.sink = descriptor(tensors.at.sink);
    args.bias = descriptor(tensors.at.bias);
    args.workspace = workspace;
    args.workspace_size = size;
    OwnedError error;
    return isoflash_forward(plan_.get(), &args, error.error) == ISOFLASH_OK ? std::string() : error.message();
  });
}

std::string Call::backward(const CaseTensors& tensors, Wanted wanted) const {
  const std::size_t size = isoflash_backward_workspace_size(plan_.get());
  const std::vector<u32> out_before = element_bits(tensors.at.out), lse_before = element_bits(tensors.at.lse);
  std::string message = guarded(tensors, size, [&](void* workspace) {
    isoflash_backward_args args;
    isoflash_backward_args_init(&args);
    args.q = descriptor(tensors.at.q);
    args.k = descriptor(tensors.at.k);
    args.v = descriptor(tensors.at.v);
    args.out = descriptor(tensors.at.out);
    args.lse = descriptor(tensors.at.lse);
    args.dout = descriptor(tensors.at.dout);
    args.sink = descriptor(tensors.at.sink);
    args.bias = descriptor(tensors.at.bias);
    if (given(tensors.at.dlse)) args.dlse = descriptor(tensors.at.dlse);
    if (wanted.dq) args.dq = descriptor(tensors.at.dq);
    if (wanted.dk) args.dk = descriptor(tensors.at.dk);
    if (wanted.dv) args.dv = descriptor(tensors.at.dv);
    if (wanted.dsink) args.dsink = descriptor(tensors.at.dsink);
    if (wanted.dbias) args.dbias = descriptor(tensors.at.dbias);
    args.workspace = workspace;
    args.workspace_size = size;
    OwnedError error;
    return isoflash_backward(plan_.get(), &args, error.error) == ISOFLASH_OK ? std::string() : error.message();
  });
  if (!message.empty()) return message;
  if (element_bits(tensors.at.out) != out_before || element_bits(tensors.at.lse) != lse_before)
    return "the backward modified out or lse";
  return {};
}

std::vector<std::string> runnable_levels() {
  std::vector<std::string> names = {""};
  for (i32 n = 0; n < isoflash_cpu_level_count(); ++n) {
    const std::string name = isoflash_cpu_level_name(n);
    if (name != isoflash_cpu_level_in_use() && isoflash_cpu_level_available(n) != 0) names.push_back(name);
  }
  return names;
}

bool level_available(const std::string& level) {
  for (i32 n = 0; n < isoflash_cpu_level_count(); ++n)
    if (level == isoflash_cpu_level_name(n)) return isoflash_cpu_level_available(n) != 0;
  return false;
}

}  // namespace iso::conformance
