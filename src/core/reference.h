// The oracle: slow attention, forward and backward, straight from the definition.
//
//   S = softcap(scale * q.k) + bias for the keys that visible() allows
//   P = exp(S) / (sum(exp(S)) + exp(sink))
//   O = P V          lse = ln(sum(exp(S)) + exp(sink))          D = rowsum(dO∘O) - dlse
//   dV = P^T dO      dS = P ∘ (dO V^T - D)          dQ = scale * (dS ∘ softcap') K      dK = scale * (dS ∘ softcap')^T Q
//   dbias = dS, summed over what an extent of 1 stands for          dsink = -sum over the rows of exp(sink - lse) D
//
// It shares visible() and kv_place() with the backends and nothing else: no intervals, no tiles, no running maximum. A key
// that a row may not see is never read for that row. A score of -inf counts as a key that is not there. A row that sees no
// key has out = 0, lse = sink (-inf without one), dq = 0; rows of a tensor that are not in use have out = 0, lse = -inf.
//
// Reference<Float64> is the truth. Reference<MixedPrecision> is the yardstick for rounding: the textbook implementation
// that keeps operands (also P, dS and the results) in the tensor's type and sums and statistics in float32. A backend is
// good if it is not much farther from the truth than that (tests/conformance/tolerance.h).
//
// Whole results come from forward() and backward(); forward_row(), dq_row(), dkv_row(), dbias_row() and dsink() give single
// rows, so that large batches can be checked by samples. Not safe for concurrent use of one object: it keeps the last head
// it loaded.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/problem.h"

namespace iso {
inline namespace ISO_TARGET {
namespace reference {

// Everything in float64, nothing rounded.
struct Float64 {
  using Real = double;
  static double round(DType, double x) { return x; }
};

// Operands of products in the tensor's type, sums and statistics in float32.
struct MixedPrecision {
  using Real = float;
  static float round(DType dtype, float x) {
    if (dtype == DType::bf16) return to_float(to_bf16(x));
    if (dtype == DType::f16) return to_float(to_f16(x));
    return x;
  }
};

// Offset of element [batch, row, head, 0] of q, k, v, out and their gradients; packed tensors have no batch axis.
inline i64 row_offset(const Tensor& t, i64 batch, i64 row, i64 head) {
  return t.rank == 4 ? batch * t.strides[0] + row * t.strides[1] + head * t.strides[2]
                     : row * t.strides[0] + head * t.strides[1];
}

// Offset of element [batch, head, row] of lse and its gradient.
inline i64 lse_offset(const Tensor& t, i64 batch, i64 head, i64 row) {
  return t.rank == 3 ? batch * t.strides[0] + head * t.strides[1] + row * t.strides[2]
                     : head * t.strides[0] + row * t.strides[1];
}

// Offset of the bias of one (query, key) pair, or of its gradient: an axis of extent 1 before the last stands for all.
inline i64 bias_offset(const Tensor& t, i64 batch, i64 head, i64 row, i64 key) {
  const i64 index[4] = {batch, head, row, key};
  i64 offset = key * t.strides[t.rank - 1];
  for (i32 axis = 0; axis + 1 < t.rank; ++axis)
    if (t.shape[axis] != 1) offset += index[axis + 4 - t.rank] * t.strides[axis];
  return offset;
}

// The element `offset` elements after t.data. Every type that a call accepts is exact in float.
inline float load(const Tensor& t, i64 offset) {
  if (t.dtype == DType::bf16) return to_float(static_cast<const bf16*>(t.data)[offset]);
  if (t.dtype == DType::f16) return to_float(static_cast<const f16*>(t.data)[offset]);
  return static_cast<const float*>(t.data)[offset];
}

// A score after the soft cap, and the derivative of the soft cap there.
template <class Real>
struct Capped {
  Real score, slope;
};

template <class Real>
Capped<Real> softcap(SoftcapKind kind, Real cap, Real s) {
  if (kind == SoftcapKind::tanh) {
    const Real t = std::tanh(s / cap);
    return {cap * t, (1 - t) * (1 + t)};
  }
  if (kind == SoftcapKind::soft_sign) {
    const Real shrink = 1 / (1 + std::abs(s) / cap);
    return {s * shrink, shrink * shrink};
  }
  return {s, 1};
}

// Results in the tensors' logical order, contiguous. Rows that belong to no sequence, or are not in use, count as rows
// that see nothing.
template <class Real>
struct ForwardResult {
  std::vector<Real> out, lse;
};
template <class Real>
struct BackwardResult {
  std::vector<Real> dq, dk, dv, dsink, dbias;
};

// What a Reference reads. dout and dlse are for gradients; new keys, a sink and a bias may be absent.
struct Inputs {
  Tensor q, k, v, k_new, v_new, sink, bias, dout, dlse;
  Inputs(const ForwardTensors& t) : q(t.q), k(t.k), v(t.v), k_new(t.k_new), v_new(t.v_new), sink(t.sink), bias(t.bias) {}
  Inputs(const BackwardTensors& t) : q(t.q), k(t.k), v(t.v), sink(t.sink), bias(t.bias), dout(t.dout), dlse(t.dlse) {}
};

template <class Arithmetic>
class Reference {
 public:
  using Real = typename Arithmetic::Real;
  struct OutputRow {
    std::vector<Real> out;
    Real lse;
  };
  struct KeyGradients {
    std::vector<Real> dk, dv;
  };

  Reference(const Problem& problem, std::span<const Sequence> sequences, const Inputs& inputs)
      : problem_(problem), sequences_(sequences), inputs_(inputs), dbias_(inputs.bias) {
    for (i32 axis = dbias_.rank - 1; axis >= 0; --axis)
      dbias_.strides[axis] = axis + 1 == dbias_.rank ? 1 : dbias_.strides[axis + 1] * dbias_.shape[axis + 1];
  }

  OutputRow forward_row(i64 sequence, i64 head, i64 row) {
    const Softmax softmax = softmax_row(load_query(sequence, head, row));
    OutputRow result{std::vector<Real>(problem_.head_dim_v), softmax.lse};
    if (softmax.keys.empty()) return result;
    const Head& kv = load_head(sequence, head / group_size(problem_));
    for (std::size_t n = 0; n < softmax.keys.size(); ++n)
      for (i64 d = 0; d < problem_.head_dim_v; ++d)
        result.out[d] += round(softmax.weight[n]) * kv.v[softmax.keys[n] * problem_.head_dim_v + d];
    for (Real& x : result.out) x = round(x / softmax.sum);
    return result;
  }

  std::vector<Real> dq_row(i64 sequence, i64 head, i64 row) {
    std::vector<Real> dq(problem_.head_dim);
    const Query query = load_query(sequence, head, row);
    const Statistics statistics = statistics_row(query);
    const Head& kv = load_head(sequence, head / group_size(problem_));
    for_each_visible_key(query, [&](i32 j) {
      const Pair pair = gradient_pair(query, kv, j, statistics);
      for (i64 d = 0; d < problem_.head_dim; ++d) dq[d] += round(pair.ds * pair.slope) * kv.k[j * problem_.head_dim + d];
    });
    for (Real& x : dq) x = round(x * scale());
    return dq;
  }

  KeyGradients dkv_row(i64 sequence, i64 head_kv, i64 key) {
    KeyGradients result{std::vector<Real>(problem_.head_dim), std::vector<Real>(problem_.head_dim_v)};
    for (i64 head = head_kv * group_size(problem_); head < (head_kv + 1) * group_size(problem_); ++head) {
      for (i32 row = 0; row < sequences_[sequence].seqlen_q; ++row) {
        if (!visible(sequences_[sequence], head, row, static_cast<i32>(key))) continue;
        const Query query = load_query(sequence, head, row);
        const Statistics statistics = statistics_row(query);
        const Pair pair = gradient_pair(query, load_head(sequence, head_kv), key, statistics);
        accumulate(pair, query, result.dk.data(), result.dv.data());
      }
    }
    for (Real& x : result.dk) x = round(x * scale());
    for (Real& x : result.dv) x = round(x);
    return result;
  }

  // The gradient of elements [batch, head, row, all keys] of the bias (packed: [head, row, all keys], batch 0). The indices
  // are within the bias's own extents.
  std::vector<Real> dbias_row(i64 batch, i64 head, i64 row) {
    std::vector<Real> result(dbias_.shape[dbias_.rank - 1]);
    const i64 wanted = bias_offset(dbias_, batch, head, row, 0);
    for_each_row([&](i64 sequence, i64 h, i64 i) {
      const Sequence& s = sequences_[sequence];
      if (bias_offset(dbias_, s.q_batch, h, s.q_row_begin + i, 0) != wanted) return;
      for_each_score_gradient(sequence, h, i, [&](i64 key, Real ds) { result[key] += ds; });
    });
    return result;
  }

  // The gradient of one head's sink.
  Real dsink(i64 head) {
    Real result = 0;
    for (i64 b = 0; b < static_cast<i64>(sequences_.size()); ++b)
      for (i64 i = 0; i < sequences_[b].seqlen_q; ++i) result += sink_gradient(b, head, i);
    return result;
  }

  ForwardResult<Real> forward() {
    const i64 rows = slots_q() * problem_.rows_q * problem_.num_heads_q;
    ForwardResult<Real> result{std::vector<Real>(rows * problem_.head_dim_v),
                               std::vector<Real>(rows, -std::numeric_limits<Real>::infinity())};
    for_each_row([&](i64 b, i64 head, i64 i) {
      const Sequence& s = sequences_[b];
      const OutputRow row = forward_row(b, head, i);
      std::copy(row.out.begin(), row.out.end(), result.out.begin() + contiguous_q(s, head, i) * problem_.head_dim_v);
      result.lse[(s.q_batch * problem_.num_heads_q + head) * problem_.rows_q + s.q_row_begin + i] = row.lse;
    });
    return result;
  }

  BackwardResult<Real> backward() {
    BackwardResult<Real> result = zero_gradients<Real>();
    for_each_row([&](i64 b, i64 head, i64 i) { backward_row(b, head, i, result); });
    for (Real& x : result.dk) x = round(x * scale());
    for (Real& x : result.dv) x = round(x);
    return result;
  }

  // How far off the gradients may be, to first order, for reasons no implementation escapes: `out`, which enters D, is
  // rounded with relative error `unit`; dP, the scores and lse with that of float32. The first two matter where the terms
  // of dS cancel, the last two where scores are huge, since P = exp(S - lse).
  BackwardResult<double> unavoidable_error(double unit) {
    BackwardResult<double> result = zero_gradients<double>();
    for_each_row([&](i64 b, i64 head, i64 i) { unavoidable_error_row(b, head, i, unit, result); });
    return result;
  }

 private:
  // Keys and values of one kv head of one sequence, contiguous.
  struct Head {
    i64 sequence = -1, head = -1;
    std::vector<Real> k, v;
  };
  // One row of q and, if there are gradients, of dout.
  struct Query {
    i64 sequence, head, row;
    std::vector<Real> q, dout;
  };
  // The softmax of one row: the keys it sees, exp(S - max) for each, their sum with that of the sink, and lse.
  struct Softmax {
    std::vector<i32> keys;
    std::vector<Real> weight;
    Real sum = 0, lse = -std::numeric_limits<Real>::infinity();
  };
  // What the backward needs of a row: lse, and D = rowsum(dO∘O) - dlse.
  struct Statistics {
    Real lse, delta;
  };
  // P and dS of one (query, key) pair, and the slope of the soft cap there.
  struct Pair {
    Real p, ds, slope;
  };

  Real round(Real x) const { return Arithmetic::round(problem_.dtype, x); }
  Real scale() const { return static_cast<Real>(problem_.scale); }
  Real sink(i64 head) const {
    return given(inputs_.sink) ? static_cast<Real>(load(inputs_.sink, head * inputs_.sink.strides[0]))
                               : -std::numeric_limits<Real>::infinity();
  }

  i64 slots_q() const { return problem_.packed ? 1 : problem_.batch; }
  i64 contiguous_q(const Sequence& s, i64 head, i64 row) const {
    return (s.q_batch * problem_.rows_q + s.q_row_begin + row) * problem_.num_heads_q + head;
  }
  // Gradients exist for dense and packed keys, not for pages and new keys.
  i64 contiguous_kv(const Sequence& s, i64 head, i64 row) const {
    return (s.kv_batch * problem_.rows_kv + s.kv_row_begin + row) * problem_.num_heads_kv + head;
  }
  template <class Number>
  BackwardResult<Number> zero_gradients() const {
    const i64 rows_q = slots_q() * problem_.rows_q * problem_.num_heads_q;
    const i64 rows_kv =
        (problem_.kv_layout == KvLayout::packed ? 1 : problem_.batch) * problem_.rows_kv * problem_.num_heads_kv;
    i64 size_bias = given(dbias_) ? 1 : 0;
    for (i32 axis = 0; axis < dbias_.rank; ++axis) size_bias *= dbias_.shape[axis];
    return {std::vector<Number>(rows_q * problem_.head_dim), std::vector<Number>(rows_kv * problem_.head_dim),
            std::vector<Number>(rows_kv * problem_.head_dim_v),
            std::vector<Number>(given(inputs_.sink) ? problem_.num_heads_q : 0), std::vector<Number>(size_bias)};
  }

  // Calls visit(sequence, head, row) for every query row in use.
  template <class Visit>
  void for_each_row(const Visit& visit) const {
    for (i64 b = 0; b < static_cast<i64>(sequences_.size()); ++b)
      for (i64 head = 0; head < problem_.num_heads_q; ++head)
        for (i64 i = 0; i < sequences_[b].seqlen_q; ++i) visit(b, head, i);
  }
  template <class Visit>
  void for_each_visible_key(const Query& query, const Visit& visit) const {
    const Sequence& s = sequences_[query.sequence];
    for (i32 j = 0; j < s.seqlen_kv; ++j)
      if (visible(s, query.head, static_cast<i32>(query.row), j)) visit(j);
  }

  void append_row(std::vector<Real>& x, const Tensor& t, i64 dim, i64 batch, i64 row, i64 head) const {
    const i64 offset = row_offset(t, batch, row, head);
    for (i64 d = 0; d < dim; ++d) x.push_back(load(t, offset + d * t.strides[t.rank - 1]));
  }
  Query load_query(i64 sequence, i64 head, i64 row) const {
    const Sequence& s = sequences_[sequence];
    Query query{sequence, head, row, {}, {}};
    append_row(query.q, inputs_.q, problem_.head_dim, s.q_batch, s.q_row_begin + row, head);
    if (given(inputs_.dout))
      append_row(query.dout, inputs_.dout, problem_.head_dim_v, s.q_batch, s.q_row_begin + row, head);
    return query;
  }
  const Head& load_head(i64 sequence, i64 head) {
    if (head_.sequence == sequence && head_.head == head) return head_;
    const Sequence& s = sequences_[sequence];
    head_ = {sequence, head, {}, {}};
    for (i32 j = 0; j < s.seqlen_kv; ++j) {
      const KvPlace at = kv_place(s, j);
      append_row(head_.k, at.is_new ? inputs_.k_new : inputs_.k, problem_.head_dim, at.batch, at.row, head);
      append_row(head_.v, at.is_new ? inputs_.v_new : inputs_.v, problem_.head_dim_v, at.batch, at.row, head);
    }
    return head_;
  }

  Capped<Real> score(const Query& query, const Head& kv, i64 key) const {
    Real dot = 0;
    for (i64 d = 0; d < problem_.head_dim; ++d) dot += query.q[d] * kv.k[key * problem_.head_dim + d];
    Capped<Real> s = softcap(problem_.softcap_kind, static_cast<Real>(problem_.softcap), scale() * dot);
    const Sequence& at = sequences_[query.sequence];
    if (given(inputs_.bias))
      s.score += load(inputs_.bias, bias_offset(inputs_.bias, at.q_batch, query.head, at.q_row_begin + query.row, key));
    return s;
  }

  Softmax softmax_row(const Query& query) {
    Softmax result;
    const Head& kv = load_head(query.sequence, query.head / group_size(problem_));
    const Real of_sink = sink(query.head);
    Real maximum = of_sink;
    for_each_visible_key(query, [&](i32 j) {
      const Real s = score(query, kv, j).score;
      if (s == -std::numeric_limits<Real>::infinity()) return;
      result.keys.push_back(j);
      result.weight.push_back(s);
      // A NaN among the visible scores must reach the result.
      if (!(s <= maximum)) maximum = s;
    });
    if (result.keys.empty()) {
      result.lse = of_sink;
      return result;
    }
    for (Real& x : result.weight) result.sum += x = std::exp(x - maximum);
    result.sum += std::exp(of_sink - maximum);
    result.lse = maximum + std::log(result.sum);
    return result;
  }

  Statistics statistics_row(const Query& query) {
    const i64 key = (query.sequence * problem_.num_heads_q + query.head) * kMaxSeqlen + query.row;
    if (const auto found = statistics_.find(key); found != statistics_.end()) return found->second;
    const OutputRow forward = forward_row(query.sequence, query.head, query.row);
    Statistics result{forward.lse, 0};
    for (i64 d = 0; d < problem_.head_dim_v; ++d) result.delta += query.dout[d] * forward.out[d];
    if (given(inputs_.dlse)) {
      const Sequence& s = sequences_[query.sequence];
      result.delta -= load(inputs_.dlse, lse_offset(inputs_.dlse, s.q_batch, query.head, s.q_row_begin + query.row));
    }
    return statistics_[key] = result;
  }

  // exp(s - lse), where s of -inf is not there, whatever lse is.
  static Real probability(Real s, Real lse) { return s == -std::numeric_limits<Real>::infinity() ? 0 : std::exp(s - lse); }

  Pair gradient_pair(const Query& query, const Head& kv, i64 key, const Statistics& statistics) const {
    const Capped<Real> s = score(query, kv, key);
    Real dp = 0;
    for (i64 d = 0; d < problem_.head_dim_v; ++d) dp += query.dout[d] * kv.v[key * problem_.head_dim_v + d];
    const Real p = probability(s.score, statistics.lse);
    return {p, p * (dp - statistics.delta), s.slope};
  }

  void accumulate(const Pair& pair, const Query& query, Real* dk, Real* dv) const {
    for (i64 d = 0; d < problem_.head_dim; ++d) dk[d] += round(pair.ds * pair.slope) * query.q[d];
    for (i64 d = 0; d < problem_.head_dim_v; ++d) dv[d] += round(pair.p) * query.dout[d];
  }

  // Calls visit(key, dS) for the keys that the row sees.
  template <class Visit>
  void for_each_score_gradient(i64 sequence, i64 head, i64 row, const Visit& visit) {
    const Query query = load_query(sequence, head, row);
    const Statistics statistics = statistics_row(query);
    const Head& kv = load_head(sequence, head / group_size(problem_));
    for_each_visible_key(query, [&](i32 j) { visit(j, gradient_pair(query, kv, j, statistics).ds); });
  }
  Real sink_gradient(i64 sequence, i64 head, i64 row) {
    const Statistics statistics = statistics_row(load_query(sequence, head, row));
    return -probability(sink(head), statistics.lse) * statistics.delta;
  }

  // One query row's share of all gradients; dk and dv stay unscaled and unrounded until all rows are in.
  void backward_row(i64 sequence, i64 head, i64 row, BackwardResult<Real>& result) {
    const Sequence& s = sequences_[sequence];
    const i64 head_kv = head / group_size(problem_);
    const Query query = load_query(sequence, head, row);
    const Statistics statistics = statistics_row(query);
    const Head& kv = load_head(sequence, head_kv);
    Real* dq = result.dq.data() + contiguous_q(s, head, row) * problem_.head_dim;
    for_each_visible_key(query, [&](i32 j) {
      const Pair pair = gradient_pair(query, kv, j, statistics);
      for (i64 d = 0; d < problem_.head_dim; ++d) dq[d] += round(pair.ds * pair.slope) * kv.k[j * problem_.head_dim + d];
      const i64 key = contiguous_kv(s, head_kv, j);
      accumulate(pair, query, result.dk.data() + key * problem_.head_dim, result.dv.data() + key * problem_.head_dim_v);
      if (given(dbias_)) result.dbias[bias_offset(dbias_, s.q_batch, head, s.q_row_begin + row, j)] += pair.ds;
    });
    for (i64 d = 0; d < problem_.head_dim; ++d) dq[d] = round(dq[d] * scale());
    if (given(inputs_.sink)) result.dsink[head] += sink_gradient(sequence, head, row);
  }

  void unavoidable_error_row(i64 sequence, i64 head, i64 row, double unit, BackwardResult<double>& result) {
    const Sequence& s = sequences_[sequence];
    const i64 dim = problem_.head_dim, dim_v = problem_.head_dim_v, head_kv = head / group_size(problem_);
    const OutputRow forward = forward_row(sequence, head, row);
    const Query query = load_query(sequence, head, row);
    const Head& kv = load_head(sequence, head_kv);
    const double delta = statistics_row(query).delta;
    // Roundings of out that differ from element to element, and one that all share (v constant along a row).
    double common = 0, delta_square = 0;
    for (i64 d = 0; d < dim_v; ++d) {
      common += query.dout[d] * forward.out[d];
      delta_square += query.dout[d] * forward.out[d] * query.dout[d] * forward.out[d];
    }
    const double delta_error = unit * std::sqrt(delta_square + common * common);
    // Relative error of P = exp(s - lse).
    const auto p_error = [&](double s) { return 0x1p-24 * (std::abs(s) + std::abs(static_cast<double>(forward.lse))); };
    for_each_visible_key(query, [&](i32 j) {
      const Capped<Real> capped = score(query, kv, j);
      const double p = probability(capped.score, forward.lse);
      if (p == 0) return;
      double dp = 0, dp_terms = 0;
      for (i64 d = 0; d < dim_v; ++d) {
        dp += query.dout[d] * kv.v[j * dim_v + d];
        dp_terms += std::abs(query.dout[d] * kv.v[j * dim_v + d]);
      }
      const double ds_error = p * (delta_error + 0x1p-23 * dp_terms + p_error(capped.score) * std::abs(dp - delta));
      const double dqk_error = ds_error * capped.slope * std::abs(problem_.scale);
      const i64 key = contiguous_kv(s, head_kv, j);
      for (i64 d = 0; d < dim; ++d) {
        result.dq[contiguous_q(s, head, row) * dim + d] += dqk_error * std::abs(kv.k[j * dim + d]);
        result.dk[key * dim + d] += dqk_error * std::abs(query.q[d]);
      }
      for (i64 d = 0; d < dim_v; ++d) result.dv[key * dim_v + d] += p * p_error(capped.score) * std::abs(query.dout[d]);
      if (given(dbias_)) result.dbias[bias_offset(dbias_, s.q_batch, head, s.q_row_begin + row, j)] += ds_error;
    });
    if (!given(inputs_.sink)) return;
    const double p = probability(sink(head), forward.lse);
    if (p != 0) result.dsink[head] += p * (delta_error + p_error(sink(head)) * std::abs(delta));
  }

  Problem problem_;
  std::span<const Sequence> sequences_;
  Inputs inputs_;
  Tensor dbias_;  // the extents of the bias, contiguous
  Head head_;
  std::unordered_map<i64, Statistics> statistics_;
};

}  // namespace reference
}  // namespace ISO_TARGET
}  // namespace iso
