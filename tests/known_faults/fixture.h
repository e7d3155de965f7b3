// What the known-fault tests share: memory that shows faults, and one attention call, forward and backward, through the
// C ABI as a user makes it. reference.h has the right values.
//
// All memory starts as bytes 0xFF, a NaN in every float type: reading what was never given shows as NaN, and an output that
// was not written is still 0xFF.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "isoflash/isoflash.h"

namespace iso::known_faults {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

using Index = std::array<int64_t, 4>;

// Repeatable pseudo-random numbers in [-1, 1), one per (seed, position).
inline double noise(uint64_t seed, uint64_t position) {
  uint64_t x = seed * 0x9e3779b97f4a7c15ull + position + 0x632be59bd9b4e019ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1.0;
}

inline double round_to(isoflash_dtype dtype, double x) {
  const float f = static_cast<float>(x);
  if (dtype == ISOFLASH_BF16) return to_float(to_bf16(f));
  if (dtype == ISOFLASH_F16) return to_float(to_f16(f));
  return f;
}

// 64-byte aligned, so that a copied buffer has the alignment of the original.
template <class T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <class U>
  Aligned(const Aligned<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{64}); }
  friend bool operator==(Aligned, Aligned) { return true; }
};
using Bytes = std::vector<unsigned char, Aligned<unsigned char>>;

// One tensor in a block of its own, with guard bands on both sides; strides count elements, `offset` shifts the first one.
class Buffer {
 public:
  Buffer() = default;
  Buffer(isoflash_dtype dtype, std::vector<int64_t> shape, std::vector<int64_t> strides = {}, int64_t offset = 0)
      : dtype_(dtype),
        size_(dtype_size(static_cast<DType>(dtype))),
        shape_(std::move(shape)),
        strides_(std::move(strides)) {
    if (strides_.empty()) {
      strides_.assign(shape_.size(), 1);
      for (size_t n = shape_.size(); n-- > 1;) strides_[n - 1] = strides_[n] * shape_[n];
    }
    int64_t low = 0, high = 1;
    for (size_t n = 0; n < shape_.size(); ++n) {
      const int64_t reach = shape_[n] > 0 ? (shape_[n] - 1) * strides_[n] : 0;
      (reach < 0 ? low : high) += reach;
    }
    first_ = kGuard + offset * size_ - low * size_;
    bytes_.assign(static_cast<size_t>(2 * kGuard + (high - low + offset) * size_), 0xFF);
  }

  isoflash_tensor tensor() {
    isoflash_tensor t{};
    t.data = bytes_.data() + first_;
    t.dtype = dtype_;
    t.rank = static_cast<int32_t>(shape_.size());
    for (size_t n = 0; n < shape_.size(); ++n) t.shape[n] = shape_[n], t.strides[n] = strides_[n];
    t.device_type = ISOFLASH_CPU;
    return t;
  }

  isoflash_dtype dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }

  double get(Index i) const {
    const unsigned char* p = at(i);
    if (size_ == 4) {
      float x;
      std::memcpy(&x, p, 4);
      return x;
    }
    u16 bits;
    std::memcpy(&bits, p, 2);
    return dtype_ == ISOFLASH_BF16 ? to_float(bf16{bits}) : to_float(f16{bits});
  }
  void set(Index i, double x) {
    const float f = static_cast<float>(x);
    unsigned char* p = at(i);
    if (size_ == 4) {
      std::memcpy(p, &f, 4);
    } else {
      const u16 bits = dtype_ == ISOFLASH_BF16 ? to_bf16(f).bits : to_f16(f).bits;
      std::memcpy(p, &bits, 2);
    }
  }
  // The number of the element in logical order.
  int64_t offset_in_order(Index i) const {
    int64_t offset = 0;
    for (size_t n = 0; n < shape_.size(); ++n) offset = offset * shape_[n] + i[n];
    return offset;
  }
  template <class F>
  void for_each(F f) const {
    if (std::any_of(shape_.begin(), shape_.end(), [](int64_t n) { return n == 0; })) return;
    Index i{};
    for (;;) {
      f(i);
      size_t n = shape_.size();
      while (n > 0 && ++i[n - 1] == shape_[n - 1]) i[--n] = 0;
      if (n == 0) return;
    }
  }
  void fill(const std::function<double(Index)>& value) {
    for_each([&](Index i) { set(i, value(i)); });
  }
  void fill(double value) {
    for_each([&](Index i) { set(i, value); });
  }
  void fill_noise(uint64_t seed, double scale = 1.0, double mean = 0.0) {
    uint64_t position = 0;
    for_each([&](Index i) { set(i, mean + scale * noise(seed, position++)); });
  }
  void poison() { std::fill(bytes_.begin(), bytes_.end(), 0xFF); }

  const Bytes& bytes() const { return bytes_; }

  // Every element was written, and nothing else.
  void expect_only_elements_written(const char* name) const {
    std::vector<bool> element(bytes_.size());
    int64_t unwritten = 0;
    for_each([&](Index i) {
      const size_t begin = static_cast<size_t>(at(i) - bytes_.data());
      bool poisoned = true;
      for (int n = 0; n < size_; ++n) element[begin + n] = true, poisoned &= bytes_[begin + n] == 0xFF;
      unwritten += poisoned;
    });
    EXPECT_EQ(unwritten, 0) << name << ": elements that the call left unwritten";
    int64_t trampled = 0;
    for (size_t n = 0; n < bytes_.size(); ++n) trampled += !element[n] && bytes_[n] != 0xFF;
    EXPECT_EQ(trampled, 0) << name << ": bytes written outside the tensor (guard bands, gaps between strided elements)";
  }

 private:
  static constexpr int64_t kGuard = 4096;
  unsigned char* at(Index i) { return const_cast<unsigned char*>(std::as_const(*this).at(i)); }
  const unsigned char* at(Index i) const {
    int64_t offset = 0;
    for (size_t n = 0; n < shape_.size(); ++n) offset += i[n] * strides_[n];
    return bytes_.data() + first_ + offset * size_;
  }

  isoflash_dtype dtype_ = ISOFLASH_F32;
  int size_ = 4;
  std::vector<int64_t> shape_, strides_;
  int64_t first_ = 0;  // byte of element [0, 0, ...]
  Bytes bytes_;
};

// What a refused call said.
struct Refusal {
  isoflash_status id = 0;
  std::string name, message;
};

struct ErrorDeleter {
  void operator()(isoflash_error* e) const { isoflash_error_destroy(e); }
};
struct PlanDeleter {
  void operator()(isoflash_plan* p) const { isoflash_plan_destroy(p); }
};
using PlanHandle = std::unique_ptr<isoflash_plan, PlanDeleter>;
using ErrorHandle = std::unique_ptr<isoflash_error, ErrorDeleter>;

inline Refusal refusal_of(isoflash_status status, const ErrorHandle& error) {
  if (status == ISOFLASH_OK) return {};
  return {status, isoflash_error_name(error.get()), isoflash_error_message(error.get())};
}

// Plans `problem`; the refusal's id is 0 if it was accepted.
inline Refusal plan_refusal(const isoflash_problem& problem, PlanHandle* plan = nullptr, int num_threads = 2,
                            int num_splits = 0) {
  const ErrorHandle error(isoflash_error_create());
  isoflash_plan_options options;
  isoflash_plan_options_init(&options);
  options.num_threads = num_threads;
  options.num_splits = num_splits;
  isoflash_plan* made = nullptr;
  const isoflash_status status = isoflash_plan_create(&problem, &options, &made, error.get());
  EXPECT_EQ(status == ISOFLASH_OK, made != nullptr) << "a plan must be made exactly when the status is OK";
  const PlanHandle owner(made);
  if (plan) *plan = PlanHandle(const_cast<PlanHandle&>(owner).release());
  return refusal_of(status, error);
}

struct Sizes {
  int64_t batch = 1, seqlen_q = 1, seqlen_kv = 1, num_heads_q = 1, num_heads_kv = 1, head_dim = 8;
  int64_t head_dim_v = 0;  // 0: head_dim
};

// One attention call: a problem, its tensors, and what each row may see.
struct Attention {
  isoflash_problem problem;
  isoflash_dtype dtype;
  Sizes sizes;
  bool is_packed = false;
  std::vector<int64_t> begin_q, begin_kv, length_q, length_kv;  // of each sequence: first row, rows in use
  std::function<bool(int64_t b, int64_t i, int64_t j)> visible = [](int64_t, int64_t, int64_t) { return true; };
  Buffer q, k, v, out, lse, dout, dlse, dq, dk, dv;
  Buffer sink, bias, dsink, dbias;          // without shape: not given
  int64_t page_size = 0;                    // not 0: k and v are pages, and there is no backward
  std::vector<std::vector<int32_t>> pages;  // of each sequence
  std::deque<std::vector<int32_t>> arrays;
  int num_threads = 2, num_splits = 0;

  // Dense: (batch, seqlen, heads, dim).
  Attention(isoflash_dtype dtype, Sizes s) : dtype(dtype), sizes(s) {
    isoflash_problem_init(&problem);
    begin_q.assign(s.batch, 0), begin_kv.assign(s.batch, 0);
    length_q.assign(s.batch, s.seqlen_q), length_kv.assign(s.batch, s.seqlen_kv);
    make_buffers();
  }
  // Packed: sequences one after the other.
  Attention(isoflash_dtype dtype, const std::vector<int32_t>& lengths_q, const std::vector<int32_t>& lengths_kv, Sizes s)
      : dtype(dtype), sizes(s), is_packed(true) {
    isoflash_problem_init(&problem);
    sizes.batch = static_cast<int64_t>(lengths_q.size());
    std::vector<int32_t> cu_q{0}, cu_kv{0};
    for (size_t b = 0; b < lengths_q.size(); ++b) {
      begin_q.push_back(cu_q.back()), begin_kv.push_back(cu_kv.back());
      length_q.push_back(lengths_q[b]), length_kv.push_back(lengths_kv[b]);
      cu_q.push_back(cu_q.back() + lengths_q[b]), cu_kv.push_back(cu_kv.back() + lengths_kv[b]);
    }
    sizes.seqlen_q = cu_q.back(), sizes.seqlen_kv = cu_kv.back();
    problem.cu_seqlens_q = int_array(cu_q), problem.cu_seqlens_kv = int_array(cu_kv);
    make_buffers();
  }
  Attention(const Attention&) = delete;  // `visible` refers to this object

  isoflash_mask& mask() { return problem.mask; }

  isoflash_tensor int_array(std::vector<int32_t> values) {
    arrays.push_back(std::move(values));
    isoflash_tensor t;
    const int64_t shape[1] = {static_cast<int64_t>(arrays.back().size())};
    isoflash_tensor_contiguous(&t, arrays.back().data(), ISOFLASH_I32, 1, shape);
    return t;
  }

  isoflash_tensor int_array(const std::vector<int64_t>& shape, std::vector<int32_t> values) {
    isoflash_tensor t = int_array(std::move(values));
    isoflash_tensor_contiguous(&t, t.data, ISOFLASH_I32, static_cast<int32_t>(shape.size()), shape.data());
    return t;
  }

  void add_sink(double value) {
    sink = Buffer(ISOFLASH_F32, {sizes.num_heads_q}), dsink = sink;
    sink.fill(value);
  }
  void add_bias(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
    bias = Buffer(ISOFLASH_F32, shape, strides), dbias = Buffer(ISOFLASH_F32, shape);
    bias.fill_noise(9);
  }
  // The keys come from a cache of pages; sequence b has lengths[b] of them, in the pages of table[b].
  void use_pages(int64_t size, int64_t num_pages, const std::vector<int32_t>& lengths,
                 const std::vector<std::vector<int32_t>>& table) {
    page_size = size, pages = table;
    length_kv.assign(lengths.begin(), lengths.end()), problem.seqused_kv = int_array(lengths);
    problem.cu_seqlens_kv = {};
    k = Buffer(dtype, {num_pages, size, sizes.num_heads_kv, sizes.head_dim});
    v = Buffer(dtype, {num_pages, size, sizes.num_heads_kv, sizes.head_dim_v});
    size_t width = 0;
    for (const auto& row : table) width = std::max(width, row.size());
    std::vector<int32_t> entries;
    for (const auto& row : table) {
      entries.insert(entries.end(), row.begin(), row.end());
      entries.resize(entries.size() + width - row.size(), 1 << 30);  // never read
    }
    problem.block_table = int_array({sizes.batch, static_cast<int64_t>(width)}, entries);
  }
  // Keys and values in use, the rest of the pages stays NaN.
  void fill_pages(uint64_t seed = 1) {
    for (int64_t b = 0; b < sizes.batch; ++b)
      for (int64_t j = 0; j < length_kv[b]; ++j)
        for (int64_t h = 0; h < sizes.num_heads_kv; ++h) {
          for (int64_t d = 0; d < sizes.head_dim; ++d) k.set(kv_row(b, j, h, d), noise(seed + 2, key_of(b, j, h, d)));
          for (int64_t d = 0; d < sizes.head_dim_v; ++d) v.set(kv_row(b, j, h, d), noise(seed + 3, key_of(b, j, h, d)));
        }
  }
  static uint64_t key_of(int64_t b, int64_t j, int64_t h, int64_t d) {
    return static_cast<uint64_t>(((b * 100000 + j) * 64 + h) * 512 + d);
  }

  // Plain causal attention: row i stands at key position i + (length_kv - length_q).
  void causal() {
    mask().history_kind = ISOFLASH_HISTORY_CAUSAL;
    visible = [this](int64_t b, int64_t i, int64_t j) { return j <= i + length_kv[b] - length_q[b]; };
  }
  void window(int64_t left, int64_t right) {
    mask().history_kind = ISOFLASH_HISTORY_WINDOW;
    mask().window_left = left, mask().window_right = right;
    visible = [this, left, right](int64_t b, int64_t i, int64_t j) {
      const int64_t p = i + length_kv[b] - length_q[b];
      return (left < 0 || p - left <= j) && (right < 0 || j <= p + right);
    };
  }
  // Context, history, then candidates in groups; one size for all sequences, queries and keys the same rows.
  void session(int64_t num_context, int64_t history_len, int64_t num_candidates, int64_t group_size = 1) {
    mask().num_context.value = num_context, mask().history_len.value = history_len;
    mask().num_candidates.value = num_candidates, mask().candidate_group_size = group_size;
    const int64_t shared = num_context + history_len;
    visible = [=, this](int64_t b, int64_t i, int64_t j) {
      const int64_t p = i + length_kv[b] - length_q[b];
      return j < shared || (p >= shared && (p - shared) / group_size == (j - shared) / group_size);
    };
  }
  void use_rows(const std::vector<int32_t>& used_q, const std::vector<int32_t>& used_kv) {
    if (!used_q.empty()) length_q.assign(used_q.begin(), used_q.end()), problem.seqused_q = int_array(used_q);
    if (!used_kv.empty()) length_kv.assign(used_kv.begin(), used_kv.end()), problem.seqused_kv = int_array(used_kv);
  }
  void fill_noise(uint64_t seed = 1, double scale = 1.0) {
    q.fill_noise(seed + 1, scale), k.fill_noise(seed + 2, scale), v.fill_noise(seed + 3), dout.fill_noise(seed + 4);
  }

  Index row(int64_t b, int64_t begin, int64_t i, int64_t h, int64_t d) const {
    return is_packed ? Index{begin + i, h, d} : Index{b, begin + i, h, d};
  }
  Index q_row(int64_t b, int64_t i, int64_t h, int64_t d) const { return row(b, begin_q[b], i, h, d); }
  Index kv_row(int64_t b, int64_t j, int64_t h, int64_t d) const {
    return page_size > 0 ? Index{pages[b][j / page_size], j % page_size, h, d} : row(b, begin_kv[b], j, h, d);
  }
  // Of the bias: an axis of extent 1 before the last stands for all.
  Index bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    Index at = is_packed ? Index{h, begin_q[b] + i, j} : Index{b, h, i, j};
    for (size_t axis = 0; axis + 1 < bias.shape().size(); ++axis)
      if (bias.shape()[axis] == 1) at[axis] = 0;
    return at;
  }
  bool has_sink() const { return !sink.shape().empty(); }
  bool has_bias() const { return !bias.shape().empty(); }
  Index lse_at(int64_t b, int64_t h, int64_t i) const { return is_packed ? Index{h, begin_q[b] + i} : Index{b, h, i}; }
  double out_of(int64_t b, int64_t i, int64_t h, int64_t d) const { return out.get(q_row(b, i, h, d)); }
  double lse_of(int64_t b, int64_t h, int64_t i) const { return lse.get(lse_at(b, h, i)); }

  void describe() {
    problem.q = q.tensor(), problem.k = k.tensor(), problem.v = v.tensor();
    problem.out = out.tensor(), problem.lse = lse.tensor();
    if (has_sink()) problem.sink = sink.tensor();
    if (has_bias()) problem.bias = bias.tensor();
  }
  Refusal refusal() {
    describe();
    return plan_refusal(problem);
  }

  // Forward and backward, into poisoned outputs; checks that inputs are left alone and outputs are written whole and alone.
  void run() {
    describe();
    PlanHandle plan;
    const Refusal refused = plan_refusal(problem, &plan, num_threads, num_splits);
    ASSERT_EQ(refused.id, 0) << "refused: " << refused.name << ": " << refused.message;
    if (forward(plan.get()) && page_size == 0) backward(plan.get());
  }
  bool forward(const isoflash_plan* plan) {
    const Bytes before[] = {q.bytes(), k.bytes(), v.bytes()};
    out.poison(), lse.poison();
    isoflash_forward_args args;
    isoflash_forward_args_init(&args);
    args.q = q.tensor(), args.k = k.tensor(), args.v = v.tensor(), args.out = out.tensor(), args.lse = lse.tensor();
    args.sink = problem.sink, args.bias = problem.bias;
    Bytes workspace(isoflash_forward_workspace_size(plan), 0xFF);
    args.workspace = workspace.data(), args.workspace_size = workspace.size();
    const ErrorHandle error(isoflash_error_create());
    const Refusal refused = refusal_of(isoflash_forward(plan, &args, error.get()), error);
    EXPECT_EQ(refused.id, 0) << "forward: " << refused.message;
    out.expect_only_elements_written("out");
    lse.expect_only_elements_written("lse");
    EXPECT_TRUE(before[0] == q.bytes() && before[1] == k.bytes() && before[2] == v.bytes())
        << "the forward wrote to an input";
    return refused.id == 0;
  }
  void backward(const isoflash_plan* plan) {
    const Bytes before[] = {q.bytes(), k.bytes(), v.bytes(), out.bytes(), lse.bytes(), dout.bytes()};
    dq.poison(), dk.poison(), dv.poison();
    isoflash_backward_args args;
    isoflash_backward_args_init(&args);
    args.q = q.tensor(), args.k = k.tensor(), args.v = v.tensor(), args.out = out.tensor(), args.lse = lse.tensor();
    args.dout = dout.tensor();
    if (!dlse.shape().empty()) args.dlse = dlse.tensor();
    args.dq = dq.tensor(), args.dk = dk.tensor(), args.dv = dv.tensor();
    args.sink = problem.sink, args.bias = problem.bias;
    if (has_sink()) dsink.poison(), args.dsink = dsink.tensor();
    if (has_bias()) dbias.poison(), args.dbias = dbias.tensor();
    Bytes workspace(isoflash_backward_workspace_size(plan), 0xFF);
    args.workspace = workspace.data(), args.workspace_size = workspace.size();
    const ErrorHandle error(isoflash_error_create());
    const Refusal refused = refusal_of(isoflash_backward(plan, &args, error.get()), error);
    ASSERT_EQ(refused.id, 0) << "backward: " << refused.message;
    dq.expect_only_elements_written("dq");
    dk.expect_only_elements_written("dk");
    dv.expect_only_elements_written("dv");
    if (has_sink()) dsink.expect_only_elements_written("dsink");
    if (has_bias()) dbias.expect_only_elements_written("dbias");
    EXPECT_TRUE(before[0] == q.bytes() && before[1] == k.bytes() && before[2] == v.bytes() && before[3] == out.bytes() &&
                before[4] == lse.bytes() && before[5] == dout.bytes())
        << "the backward wrote to an input";
  }

 private:
  void make_buffers() {
    if (sizes.head_dim_v == 0) sizes.head_dim_v = sizes.head_dim;
    const auto rows = [&](int64_t seqlen, int64_t heads, int64_t dim) {
      return is_packed ? std::vector<int64_t>{seqlen, heads, dim} : std::vector<int64_t>{sizes.batch, seqlen, heads, dim};
    };
    const auto& s = sizes;
    q = Buffer(dtype, rows(s.seqlen_q, s.num_heads_q, s.head_dim)), dq = q;
    k = Buffer(dtype, rows(s.seqlen_kv, s.num_heads_kv, s.head_dim)), dk = k;
    v = Buffer(dtype, rows(s.seqlen_kv, s.num_heads_kv, s.head_dim_v)), dv = v;
    out = Buffer(dtype, rows(s.seqlen_q, s.num_heads_q, s.head_dim_v)), dout = out;
    lse = Buffer(ISOFLASH_F32, is_packed ? std::vector<int64_t>{s.num_heads_q, s.seqlen_q}
                                         : std::vector<int64_t>{s.batch, s.num_heads_q, s.seqlen_q});
  }
};

}  // namespace iso::known_faults
