// isoflash in C++20: a header-only face over the C ABI (isoflash.h, which defines all semantics, defaults and errors).
//
//   isoflash::Problem problem{
//       .q = {q, {1, 1090, 4, 128}}, .k = {k, {1, 1090, 2, 128}}, .v = {v, {1, 1090, 2, 128}},
//       .out = {out, {1, 1090, 4, 128}},
//       .mask = {.num_context = 2, .num_candidates = 64}};
//   isoflash::Result<isoflash::Plan> plan = isoflash::Plan::create(problem);
//   if (!plan) return fail(plan.error().message());
//   isoflash::Result<void> done = plan->forward(problem);
//   if (!done) return fail(done.error().message());
//
// Shapes, with (batch, seqlen) replaced by (total) for sequences packed one after the other (cu_seqlens given):
//
//   q, dq       (batch, seqlen_q,  num_heads_q,  head_dim)      dtype of all these: f32, bf16 or f16, one for all
//   k, dk       (batch, seqlen_kv, num_heads_kv, head_dim)
//   v, dv       (batch, seqlen_kv, num_heads_kv, head_dim_v)
//   out, dout   (batch, seqlen_q,  num_heads_q,  head_dim_v)
//   lse, dlse   (batch, num_heads_q, seqlen_q), packed (num_heads_q, total_q)   f32, natural logarithm
//   cu_seqlens  (batch + 1) int32; seqused and per-sequence mask values (batch) int32
//
// Optional, where isoflash_problem says more:
//
//   row_intervals  (batch, num_heads_q, seqlen_q, 2 n) int32, in place of the mask    axes before the last may be 1
//   blocks         lists of tiles, best made by BlockListsHandle
//   block_table    (batch, max_pages) int32: k and v are pages (num_pages, page_size, num_heads_kv, dim)
//   k_new, v_new   keys of the query rows themselves, like q with num_heads_kv heads
//   sink, dsink    (num_heads_q) f32
//   bias, dbias    (batch, num_heads_q, seqlen_q, seqlen_kv) f32                      axes before the last may be 1
//
// Strides count elements, sizes count bytes. Nothing here throws and nothing prints: what can fail returns a Result that
// holds the value or an Error of the catalogue (docs/errors.md).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "isoflash/isoflash.h"

namespace isoflash {

// What went wrong: the catalogue's id and name, one line that says what was got, what is expected and the fix, and the
// whole entry with its fields as JSON.
class Error {
 public:
  explicit Error(const isoflash_error* error)
      : id_(isoflash_error_id(error)),
        name_(isoflash_error_name(error)),
        message_(isoflash_error_message(error)),
        json_(isoflash_error_json(error)) {}
  // When there was no memory for the details.
  explicit Error(isoflash_status id) : id_(id), name_("OUT_OF_MEMORY"), message_("out of memory"), json_("{}") {}

  int id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::string& message() const { return message_; }
  const std::string& json() const { return json_; }

 private:
  int id_;
  std::string name_, message_, json_;
};

// A value or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  // Ask has_value() first; error() is there only without a value.
  T& operator*() { return *std::get_if<0>(&state_); }
  const T& operator*() const { return *std::get_if<0>(&state_); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

enum class DType : std::int32_t { f32 = ISOFLASH_F32, bf16 = ISOFLASH_BF16, f16 = ISOFLASH_F16, i32 = ISOFLASH_I32 };

// Up to four extents or strides.
struct Extents {
  std::int64_t at[4] = {0, 0, 0, 0};
  std::int32_t rank = 0;  // may exceed 4 here: the library then refuses the tensor by name

  Extents(std::initializer_list<std::int64_t> values) : Extents(std::span(values.begin(), values.size())) {}
  Extents(std::span<const std::int64_t> values) : rank(static_cast<std::int32_t>(values.size())) {
    for (std::size_t n = 0; n < values.size() && n < 4; ++n) at[n] = values[n];
  }
};

// std::vector<std::int32_t>, std::array, std::span, ... but no temporary that owns its elements: the array must live until
// the plan is made.
template <class Range>
concept Int32Range = std::ranges::contiguous_range<Range> && std::ranges::borrowed_range<Range> &&
    std::same_as<std::ranges::range_value_t<Range>, std::int32_t>;

// A view of memory that the caller owns. Pointers are taken const, since inputs are never modified; out, lse and gradients
// are written, so give those memory that may be. The default Tensor means "not given".
struct Tensor : isoflash_tensor {
  Tensor() : isoflash_tensor{} { device_type = ISOFLASH_CPU; }
  explicit Tensor(const isoflash_tensor& tensor) : isoflash_tensor(tensor) {}
  // Contiguous, last axis fastest. 16-bit types come as a pointer and their DType.
  Tensor(const float* elements, const Extents& extents) : Tensor(elements, DType::f32, extents) {}
  Tensor(const std::int32_t* elements, const Extents& extents) : Tensor(elements, DType::i32, extents) {}
  Tensor(Int32Range auto&& values)  // all of an array of lengths
      : Tensor(std::ranges::data(values), DType::i32, {static_cast<std::int64_t>(std::ranges::size(values))}) {}
  Tensor(const void* elements, DType type, const Extents& extents) : Tensor(elements, type, extents, contiguous(extents)) {}
  // With strides in elements.
  Tensor(const float* elements, const Extents& extents, const Extents& steps)
      : Tensor(elements, DType::f32, extents, steps) {}
  Tensor(const std::int32_t* elements, const Extents& extents, const Extents& steps)
      : Tensor(elements, DType::i32, extents, steps) {}
  Tensor(const void* elements, DType type, const Extents& extents, const Extents& steps) : Tensor() {
    data = const_cast<void*>(elements);
    dtype = static_cast<std::int32_t>(type);
    rank = extents.rank;
    for (int axis = 0; axis < 4; ++axis) {
      shape[axis] = extents.at[axis];
      strides[axis] = steps.at[axis];
    }
  }

 private:
  static Extents contiguous(const Extents& extents) {
    isoflash_tensor t{};
    isoflash_tensor_contiguous(&t, nullptr, ISOFLASH_F32, extents.rank, extents.at);
    Extents steps(t.strides);
    steps.rank = extents.rank;
    return steps;
  }
};

// A whole number: the default, one for all sequences, or one per sequence (an array that lives until the plan is made).
struct PerSequence : isoflash_per_sequence {
  PerSequence() : isoflash_per_sequence{ISOFLASH_DEFAULT, Tensor()} {}
  PerSequence(std::integral auto number) : isoflash_per_sequence{static_cast<std::int64_t>(number), Tensor()} {}
  PerSequence(Int32Range auto&& numbers) : isoflash_per_sequence{ISOFLASH_DEFAULT, Tensor(numbers)} {}
};

enum class HistoryKind : std::int32_t {
  bidirectional = ISOFLASH_HISTORY_BIDIRECTIONAL,
  causal = ISOFLASH_HISTORY_CAUSAL,
  window = ISOFLASH_HISTORY_WINDOW
};

inline constexpr std::int64_t kUnlimited = ISOFLASH_UNLIMITED;

// What each query may see (isoflash_mask). The default is full attention; Mask::causal() and Mask::window() are the other
// plain ones; .num_context, .history_len, .num_candidates and the rest describe a ranker's sequence.
struct Mask {
  HistoryKind history_kind = HistoryKind::bidirectional;
  std::int64_t window_left = kUnlimited, window_right = kUnlimited;
  std::int64_t candidate_group_size = 1;
  PerSequence num_context = {}, history_len = {}, num_candidates = {};
  PerSequence history_begin = {}, history_end = {}, candidate_begin = {}, query_offset = {};

  static Mask causal() { return {.history_kind = HistoryKind::causal}; }
  static Mask window(std::int64_t left, std::int64_t right) {
    return {.history_kind = HistoryKind::window, .window_left = left, .window_right = right};
  }
};

// Lists of tiles (isoflash_block_sparsity; docs/block_lists.md). Arrays of the caller, or the view of a BlockListsHandle.
struct BlockList {
  Tensor counts = {}, indices = {};
};
struct BlockLists {
  BlockList mask = {}, full = {}, diag = {};
};
struct BlockSparsity {
  std::int64_t block_m = 0, block_n = 0;  // 0: no lists
  BlockLists forward = {};                // indexed by query block
  BlockLists backward = {};               // indexed by key block; optional
  Tensor valid_upper = {}, valid_lower = {};
};

enum class SoftcapKind : std::int32_t {
  none = ISOFLASH_SOFTCAP_NONE,
  tanh = ISOFLASH_SOFTCAP_TANH,
  soft_sign = ISOFLASH_SOFTCAP_SOFT_SIGN
};

// One attention problem (isoflash_problem). A plan reads and copies the lengths, the mask's values, the intervals, the lists
// and the block table, not the data of the other tensors.
struct Problem {
  Tensor q = {}, k = {}, v = {}, out = {};
  Tensor lse = {};                               // optional; needed by the backward
  Tensor cu_seqlens_q = {}, cu_seqlens_kv = {};  // both for packed sequences, neither for dense ones
  Tensor seqused_q = {}, seqused_kv = {};        // optional: rows in use
  std::int64_t max_seqlen_q = ISOFLASH_DEFAULT, max_seqlen_kv = ISOFLASH_DEFAULT;  // optional check
  double scale = std::numeric_limits<double>::quiet_NaN();                         // NaN: 1 / sqrt(head_dim)
  SoftcapKind softcap_kind = SoftcapKind::none;
  double softcap = 0;
  Mask mask = {};
  Tensor row_intervals = {};      // in place of the mask: up to three ranges of keys for each row
  BlockSparsity blocks = {};      // on top of either
  Tensor block_table = {};        // k and v are pages
  Tensor k_new = {}, v_new = {};  // keys of the query rows, after those of k and v
  Tensor sink = {}, bias = {};
  bool deterministic = false;
};

struct PlanOptions {
  int num_threads = 0;            // 0: one per core the process may use
  const char* backend = nullptr;  // nullptr: the best one
  int num_splits = 0;             // forward: parts that the keys are cut into; 0: the backend chooses
};

struct Forward {
  Tensor q = {}, k = {}, v = {}, out = {}, lse = {};    // lse is optional
  Tensor k_new = {}, v_new = {}, sink = {}, bias = {};  // as the problem has them
};

struct Backward {
  Tensor q = {}, k = {}, v = {}, out = {}, lse = {}, dout = {};  // of the forward, and the gradient of out
  Tensor dlse = {};                                              // optional: the gradient of lse
  Tensor dq = {}, dk = {}, dv = {};                              // written; leave out what is not needed
  Tensor sink = {}, bias = {};                                   // as the problem has them
  Tensor dsink = {}, dbias = {};                                 // written; leave out what is not needed
};

// Scratch memory of one call at a time, so one per thread. The default one allocates and grows as plans ask; one made from
// memory of the caller (64-byte aligned) never allocates.
class Workspace {
 public:
  Workspace() = default;
  Workspace(void* memory, std::size_t bytes) : data_(memory), size_(bytes), fixed_(true) {}

  // Makes room for `bytes`, if memory is to be had; the library refuses a workspace that is too small.
  void reserve(std::size_t bytes) {
    if (fixed_ || bytes <= size_) return;
    owned_.reset(new (std::nothrow) std::byte[bytes + kAlignment]);
    data_ = owned_.get();
    std::size_t space = owned_ ? bytes + kAlignment : 0;
    size_ = data_ != nullptr && std::align(kAlignment, bytes, data_, space) != nullptr ? bytes : 0;
  }
  void* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::unique_ptr<std::byte[]> owned_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool fixed_ = false;
};

// Details of the last failure, for the calls below.
class ErrorHandle {
 public:
  ErrorHandle() : error_(isoflash_error_create()) {}
  isoflash_error* get() const { return error_.get(); }
  Error take(isoflash_status status) const { return error_ ? Error(error_.get()) : Error(status); }
  Result<void> result(isoflash_status status) const {
    if (status != ISOFLASH_OK) return take(status);
    return {};
  }

 private:
  struct Destroy {
    void operator()(isoflash_error* error) const { isoflash_error_destroy(error); }
  };
  std::unique_ptr<isoflash_error, Destroy> error_;
};

// Lists as the C ABI describes them, and back.
inline isoflash_block_sparsity c_blocks(const BlockSparsity& b) {
  const auto list = [](const BlockList& x) { return isoflash_block_list{x.counts, x.indices}; };
  const auto lists = [&](const BlockLists& x) { return isoflash_block_lists{list(x.mask), list(x.full), list(x.diag)}; };
  return {b.block_m, b.block_n, lists(b.forward), lists(b.backward), b.valid_upper, b.valid_lower};
}
inline BlockSparsity block_sparsity(const isoflash_block_sparsity& b) {
  const auto list = [](const isoflash_block_list& x) { return BlockList{Tensor(x.counts), Tensor(x.indices)}; };
  const auto lists = [&](const isoflash_block_lists& x) { return BlockLists{list(x.mask), list(x.full), list(x.diag)}; };
  return {b.block_m, b.block_n, lists(b.forward), lists(b.backward), Tensor(b.valid_upper), Tensor(b.valid_lower)};
}

// The problem as the C ABI describes it, for calls that have no face here.
inline isoflash_problem c_problem(const Problem& p) {
  isoflash_problem c;
  isoflash_problem_init(&c);
  c.deterministic = p.deterministic ? 1 : 0;
  c.q = p.q;
  c.k = p.k;
  c.v = p.v;
  c.out = p.out;
  c.lse = p.lse;
  c.cu_seqlens_q = p.cu_seqlens_q;
  c.cu_seqlens_kv = p.cu_seqlens_kv;
  c.seqused_q = p.seqused_q;
  c.seqused_kv = p.seqused_kv;
  c.max_seqlen_q = p.max_seqlen_q;
  c.max_seqlen_kv = p.max_seqlen_kv;
  c.scale = p.scale;
  c.softcap_kind = static_cast<std::int32_t>(p.softcap_kind);
  c.softcap = p.softcap;
  c.mask.history_kind = static_cast<std::int32_t>(p.mask.history_kind);
  c.mask.window_left = p.mask.window_left;
  c.mask.window_right = p.mask.window_right;
  c.mask.candidate_group_size = p.mask.candidate_group_size;
  c.mask.num_context = p.mask.num_context;
  c.mask.history_len = p.mask.history_len;
  c.mask.num_candidates = p.mask.num_candidates;
  c.mask.history_begin = p.mask.history_begin;
  c.mask.history_end = p.mask.history_end;
  c.mask.candidate_begin = p.mask.candidate_begin;
  c.mask.query_offset = p.mask.query_offset;
  c.row_intervals = p.row_intervals;
  c.blocks = c_blocks(p.blocks);
  c.block_table = p.block_table;
  c.k_new = p.k_new;
  c.v_new = p.v_new;
  c.sink = p.sink;
  c.bias = p.bias;
  return c;
}

// Block lists made by the library, which own their arrays. blocks() views them, so keep the handle until the plan is made.
class BlockListsHandle {
 public:
  // Of the problem's mask or row_intervals; its `blocks` must be empty.
  static Result<BlockListsHandle> from_problem(const Problem& problem, std::int64_t block_m, std::int64_t block_n) {
    const isoflash_problem c = c_problem(problem);
    return make([&](isoflash_block_lists_handle** lists, isoflash_error* error) {
      return isoflash_block_lists_from_problem(&c, block_m, block_n, lists, error);
    });
  }
  // Of rows that several users share.
  struct Sessions {
    Tensor cu_seqlens = {}, candidate_slot = {};  // int32 (rows, users + 1) and (rows, users)
    Tensor padding = {};                          // optional, int32 (rows, seqlen)
    std::int64_t seqlen = 0, prefix = 0, block = 128;
  };
  static Result<BlockListsHandle> from_sessions(const Sessions& s) {
    return make([&](isoflash_block_lists_handle** lists, isoflash_error* error) {
      return isoflash_block_lists_from_sessions(&s.cu_seqlens, &s.candidate_slot, &s.padding, s.seqlen, s.prefix, s.block,
                                                lists, error);
    });
  }
  // Both directions from the forward lists, or from the backward lists if there are only these. num_blocks: of the other
  // axis.
  static Result<BlockListsHandle> transpose(const BlockSparsity& from, std::int64_t num_blocks) {
    const isoflash_block_sparsity c = c_blocks(from);
    return make([&](isoflash_block_lists_handle** lists, isoflash_error* error) {
      return isoflash_block_lists_transpose(&c, num_blocks, lists, error);
    });
  }

  BlockSparsity blocks() const { return block_sparsity(*isoflash_block_lists_view(lists_.get())); }

 private:
  struct Destroy {
    void operator()(isoflash_block_lists_handle* lists) const { isoflash_block_lists_destroy(lists); }
  };
  explicit BlockListsHandle(isoflash_block_lists_handle* lists) : lists_(lists) {}
  template <class Build>
  static Result<BlockListsHandle> make(const Build& build) {
    const ErrorHandle error;
    isoflash_block_lists_handle* lists = nullptr;
    const isoflash_status status = build(&lists, error.get());
    if (status != ISOFLASH_OK) return error.take(status);
    return BlockListsHandle(lists);
  }

  std::unique_ptr<isoflash_block_lists_handle, Destroy> lists_;
};

// A checked problem with everything a backend prepared for it. Immutable: any number of threads may run one plan at the
// same time, each with its own Workspace.
class Plan {
 public:
  static Result<Plan> create(const Problem& problem, const PlanOptions& options = {}) {
    const isoflash_problem c = c_problem(problem);
    isoflash_plan_options o;
    isoflash_plan_options_init(&o);
    o.num_threads = options.num_threads;
    o.backend = options.backend;
    o.num_splits = options.num_splits;
    const ErrorHandle error;
    isoflash_plan* plan = nullptr;
    const isoflash_status status = isoflash_plan_create(&c, &o, &plan, error.get());
    if (status != ISOFLASH_OK) return error.take(status);
    return Plan(plan);
  }

  // Backend and kernel, e.g. "cpu:avx512_bf16".
  std::string kernel() const { return isoflash_plan_kernel(plan_.get()); }
  // Visible (query, key) pairs over all sequences, per query head.
  std::int64_t visible_pairs() const { return isoflash_plan_visible_pairs(plan_.get()); }
  // Bytes of scratch memory a call needs.
  std::size_t forward_workspace_size() const { return isoflash_forward_workspace_size(plan_.get()); }
  std::size_t backward_workspace_size() const { return isoflash_backward_workspace_size(plan_.get()); }

  Result<void> forward(const Forward& tensors, Workspace& workspace) const {
    workspace.reserve(forward_workspace_size());
    isoflash_forward_args args;
    isoflash_forward_args_init(&args);
    args.q = tensors.q;
    args.k = tensors.k;
    args.v = tensors.v;
    args.out = tensors.out;
    args.lse = tensors.lse;
    args.k_new = tensors.k_new;
    args.v_new = tensors.v_new;
    args.sink = tensors.sink;
    args.bias = tensors.bias;
    args.workspace = workspace.data();
    args.workspace_size = workspace.size();
    const ErrorHandle error;
    return error.result(isoflash_forward(plan_.get(), &args, error.get()));
  }
  // With scratch memory allocated for this call.
  Result<void> forward(const Forward& tensors) const {
    Workspace workspace;
    return forward(tensors, workspace);
  }
  // On the tensors that the problem names.
  Result<void> forward(const Problem& p, Workspace& workspace) const {
    return forward(Forward{p.q, p.k, p.v, p.out, p.lse, p.k_new, p.v_new, p.sink, p.bias}, workspace);
  }
  Result<void> forward(const Problem& p) const {
    Workspace workspace;
    return forward(p, workspace);
  }

  Result<void> backward(const Backward& tensors, Workspace& workspace) const {
    workspace.reserve(backward_workspace_size());
    isoflash_backward_args args;
    isoflash_backward_args_init(&args);
    args.q = tensors.q;
    args.k = tensors.k;
    args.v = tensors.v;
    args.out = tensors.out;
    args.lse = tensors.lse;
    args.dout = tensors.dout;
    args.dlse = tensors.dlse;
    args.dq = tensors.dq;
    args.dk = tensors.dk;
    args.dv = tensors.dv;
    args.sink = tensors.sink;
    args.bias = tensors.bias;
    args.dsink = tensors.dsink;
    args.dbias = tensors.dbias;
    args.workspace = workspace.data();
    args.workspace_size = workspace.size();
    const ErrorHandle error;
    return error.result(isoflash_backward(plan_.get(), &args, error.get()));
  }
  Result<void> backward(const Backward& tensors) const {
    Workspace workspace;
    return backward(tensors, workspace);
  }

 private:
  struct Destroy {
    void operator()(isoflash_plan* plan) const { isoflash_plan_destroy(plan); }
  };
  explicit Plan(isoflash_plan* plan) : plan_(plan) {}

  std::unique_ptr<isoflash_plan, Destroy> plan_;
};

// The results of attention over disjoint sets of keys (isoflash_merge): outs and lses of each part; out and, if given, lse
// are written. out may be one of outs, lse one of lses.
struct Merge {
  std::span<const Tensor> outs = {}, lses = {};
  Tensor out = {}, lse = {};
};
// Their gradients (isoflash_merge_backward), each for the backward of its part.
struct MergeBackward {
  std::span<const Tensor> outs = {}, lses = {};    // the parts
  Tensor out = {}, lse = {}, dout = {};            // the merged result, and the gradient of out
  Tensor dlse = {};                                // optional: the gradient of lse
  std::span<const Tensor> douts = {}, dlses = {};  // written
};

// How many parts there are; 0, which the library refuses, if the arrays do not agree.
inline std::int32_t num_parts(std::initializer_list<std::span<const Tensor>> arrays) {
  for (const std::span<const Tensor> array : arrays)
    if (array.size() != arrays.begin()->size()) return 0;
  return static_cast<std::int32_t>(arrays.begin()->size());
}
static_assert(sizeof(Tensor) == sizeof(isoflash_tensor), "arrays of Tensor are handed to C as they are");

inline Result<void> merge(const Merge& m) {
  isoflash_merge_args args;
  isoflash_merge_args_init(&args);
  args.num_parts = num_parts({m.outs, m.lses});
  args.outs = m.outs.data();
  args.lses = m.lses.data();
  args.out = m.out;
  args.lse = m.lse;
  const ErrorHandle error;
  return error.result(isoflash_merge(&args, error.get()));
}

inline Result<void> merge_backward(const MergeBackward& m) {
  isoflash_merge_backward_args args;
  isoflash_merge_backward_args_init(&args);
  args.num_parts = num_parts({m.outs, m.lses, m.douts, m.dlses});
  args.outs = m.outs.data();
  args.lses = m.lses.data();
  args.out = m.out;
  args.lse = m.lse;
  args.dout = m.dout;
  args.dlse = m.dlse;
  args.douts = m.douts.data();
  args.dlses = m.dlses.data();
  const ErrorHandle error;
  return error.result(isoflash_merge_backward(&args, error.get()));
}

inline std::string version() { return isoflash_version(); }

}  // namespace isoflash
