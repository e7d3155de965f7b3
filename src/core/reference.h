// The oracle: slow attention, forward and backward, straight from the definition.
//
//   S = softcap(scale * q.k) for the keys that visible() allows      P = softmax(S)
//   O = P V          lse = ln(sum(exp(S)))          D = rowsum(dO∘O) - dlse
//   dV = P^T dO      dS = P ∘ (dO V^T - D)          dQ = scale * (dS ∘ softcap') K      dK = scale * (dS ∘ softcap')^T Q
//
// It shares visible() with the backends and nothing else: no intervals, no tiles, no running maximum. A key that a row may
// not see is never read for that row. A row that sees no key has out = 0, lse = -inf, dq = 0.
//
// Reference<Float64> is the truth. Reference<MixedPrecision> is the yardstick for rounding: the textbook implementation
// that keeps operands (also P, dS and the results) in the tensor's type and sums and statistics in float32. A backend is
// good if it is not much farther from the truth than that (tests/conformance/tolerance.h).
//
// Whole results come from forward() and backward(); forward_row(), dq_row() and dkv_row() give single rows, so that
// large batches can be checked by samples. Not safe for concurrent use of one object: it keeps the last head it loaded.
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
  std::vector<Real> dq, dk, dv;
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

  // Only the inputs are read: q, k, v, and for gradients dout and, if given, dlse.
  Reference(const Problem& problem, std::span<const Sequence> sequences, const BackwardTensors& tensors)
      : problem_(problem), sequences_(sequences), tensors_(tensors) {}

  OutputRow forward_row(i64 sequence, i64 head, i64 row) {
    const Softmax softmax = softmax_row(sequence, head, row);
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
    const Head& kv = load_head(sequence, head / group_size(problem_));
    const std::vector<Real> q = query(tensors_.q, problem_.head_dim, sequence, head, row);
    const std::vector<Real> dout = query(tensors_.dout, problem_.head_dim_v, sequence, head, row);
    const Statistics statistics = statistics_row(sequence, head, row);
    const Interval positions = query_positions(sequences_[sequence]);
    for (i32 j = 0; j < sequences_[sequence].seqlen_kv; ++j) {
      if (!visible(sequences_[sequence].mask, positions.begin + static_cast<i32>(row), j)) continue;
      const Pair pair = gradient_pair(kv, j, q, dout, statistics);
      for (i64 d = 0; d < problem_.head_dim; ++d) dq[d] += round(pair.ds) * kv.k[j * problem_.head_dim + d];
    }
    for (Real& x : dq) x = round(x * scale());
    return dq;
  }

  KeyGradients dkv_row(i64 sequence, i64 head_kv, i64 key) {
    KeyGradients result{std::vector<Real>(problem_.head_dim), std::vector<Real>(problem_.head_dim_v)};
    const Sequence& s = sequences_[sequence];
    for (i64 head = head_kv * group_size(problem_); head < (head_kv + 1) * group_size(problem_); ++head) {
      for (i32 row = 0; row < s.seqlen_q; ++row) {
        if (!visible(s.mask, row + s.mask.query_offset, static_cast<i32>(key))) continue;
        const Statistics statistics = statistics_row(sequence, head, row);
        const std::vector<Real> q = query(tensors_.q, problem_.head_dim, sequence, head, row);
        const std::vector<Real> dout = query(tensors_.dout, problem_.head_dim_v, sequence, head, row);
        const Pair pair = gradient_pair(load_head(sequence, head_kv), key, q, dout, statistics);
        accumulate(pair, q, dout, result.dk.data(), result.dv.data());
      }
    }
    for (Real& x : result.dk) x = round(x * scale());
    for (Real& x : result.dv) x = round(x);
    return result;
  }

  ForwardResult<Real> forward() {
    const i64 rows = slots() * problem_.rows_q * problem_.num_heads_q;
    ForwardResult<Real> result{std::vector<Real>(rows * problem_.head_dim_v),
                               std::vector<Real>(rows, -std::numeric_limits<Real>::infinity())};
    for (i64 b = 0; b < static_cast<i64>(sequences_.size()); ++b) {
      const Sequence& s = sequences_[b];
      for (i64 head = 0; head < problem_.num_heads_q; ++head) {
        for (i64 i = 0; i < s.seqlen_q; ++i) {
          const OutputRow row = forward_row(b, head, i);
          std::copy(row.out.begin(), row.out.end(), result.out.begin() + contiguous_q(s, head, i) * problem_.head_dim_v);
          result.lse[(s.q_batch * problem_.num_heads_q + head) * problem_.rows_q + s.q_row_begin + i] = row.lse;
        }
      }
    }
    return result;
  }

  // How far off the gradients may be, to first order, for reasons no implementation escapes: `out`, which enters D, is
  // rounded with relative error `unit`; dP, the scores and lse with that of float32. The first two matter where the terms
  // of dS cancel, the last two where scores are huge, since P = exp(S - lse).
  BackwardResult<double> unavoidable_error(double unit) {
    BackwardResult<double> result{std::vector<double>(size_q()), std::vector<double>(size_k()),
                                  std::vector<double>(size_k() / problem_.head_dim * problem_.head_dim_v)};
    for (i64 b = 0; b < static_cast<i64>(sequences_.size()); ++b)
      for (i64 head = 0; head < problem_.num_heads_q; ++head)
        for (i64 i = 0; i < sequences_[b].seqlen_q; ++i) unavoidable_error_row(b, head, i, unit, result);
    return result;
  }

  BackwardResult<Real> backward() {
    BackwardResult<Real> result{std::vector<Real>(size_q()), std::vector<Real>(size_k()),
                                std::vector<Real>(size_k() / problem_.head_dim * problem_.head_dim_v)};
    for (i64 b = 0; b < static_cast<i64>(sequences_.size()); ++b)
      for (i64 head = 0; head < problem_.num_heads_q; ++head)
        for (i64 i = 0; i < sequences_[b].seqlen_q; ++i) backward_row(b, head, i, result);
    for (Real& x : result.dk) x = round(x * scale());
    for (Real& x : result.dv) x = round(x);
    return result;
  }

 private:
  // Keys and values of one kv head of one sequence, contiguous.
  struct Head {
    i64 sequence = -1, head = -1;
    std::vector<Real> k, v;
  };
  // The softmax of one row: its visible keys, exp(S - max) for each, their sum, and ln(sum(exp(S))).
  struct Softmax {
    std::vector<i32> keys;
    std::vector<Real> weight;
    Real sum = 0, lse = -std::numeric_limits<Real>::infinity();
  };
  // What the backward needs of a row: lse, and D = rowsum(dO∘O) - dlse.
  struct Statistics {
    Real lse, delta;
  };
  // P of one (query, key) pair, and dS times the slope of the soft cap.
  struct Pair {
    Real p, ds;
  };

  Real round(Real x) const { return Arithmetic::round(problem_.dtype, x); }
  Real scale() const { return static_cast<Real>(problem_.scale); }

  i64 slots() const { return problem_.packed ? 1 : problem_.batch; }
  i64 size_q() const { return slots() * problem_.rows_q * problem_.num_heads_q * problem_.head_dim; }
  i64 size_k() const { return slots() * problem_.rows_kv * problem_.num_heads_kv * problem_.head_dim; }
  i64 contiguous_q(const Sequence& s, i64 head, i64 row) const {
    return (s.q_batch * problem_.rows_q + s.q_row_begin + row) * problem_.num_heads_q + head;
  }
  i64 contiguous_kv(const Sequence& s, i64 head, i64 row) const {
    return (s.kv_batch * problem_.rows_kv + s.kv_row_begin + row) * problem_.num_heads_kv + head;
  }

  std::vector<Real> load_row(const Tensor& t, i64 dim, i64 batch, i64 row, i64 head) const {
    std::vector<Real> x(dim);
    const i64 offset = row_offset(t, batch, row, head);
    for (i64 d = 0; d < dim; ++d) x[d] = load(t, offset + d * t.strides[t.rank - 1]);
    return x;
  }
  std::vector<Real> query(const Tensor& t, i64 dim, i64 sequence, i64 head, i64 row) const {
    const Sequence& s = sequences_[sequence];
    return load_row(t, dim, s.q_batch, s.q_row_begin + row, head);
  }

  const Head& load_head(i64 sequence, i64 head) {
    if (head_.sequence == sequence && head_.head == head) return head_;
    const Sequence& s = sequences_[sequence];
    head_ = {sequence, head, {}, {}};
    for (i64 j = 0; j < s.seqlen_kv; ++j) {
      const std::vector<Real> k = load_row(tensors_.k, problem_.head_dim, s.kv_batch, s.kv_row_begin + j, head);
      const std::vector<Real> v = load_row(tensors_.v, problem_.head_dim_v, s.kv_batch, s.kv_row_begin + j, head);
      head_.k.insert(head_.k.end(), k.begin(), k.end());
      head_.v.insert(head_.v.end(), v.begin(), v.end());
    }
    return head_;
  }

  Capped<Real> score(const Head& kv, i64 key, const std::vector<Real>& q) const {
    Real dot = 0;
    for (i64 d = 0; d < problem_.head_dim; ++d) dot += q[d] * kv.k[key * problem_.head_dim + d];
    return softcap(problem_.softcap_kind, static_cast<Real>(problem_.softcap), scale() * dot);
  }

  Softmax softmax_row(i64 sequence, i64 head, i64 row) {
    Softmax result;
    const Sequence& s = sequences_[sequence];
    const Head& kv = load_head(sequence, head / group_size(problem_));
    const std::vector<Real> q = query(tensors_.q, problem_.head_dim, sequence, head, row);
    Real maximum = -std::numeric_limits<Real>::infinity();
    for (i32 j = 0; j < s.seqlen_kv; ++j) {
      if (!visible(s.mask, static_cast<i32>(row) + s.mask.query_offset, j)) continue;
      result.keys.push_back(j);
      result.weight.push_back(score(kv, j, q).score);
      // A NaN among the visible scores must reach the result.
      if (!(result.weight.back() <= maximum)) maximum = result.weight.back();
    }
    if (result.keys.empty()) return result;
    for (Real& x : result.weight) result.sum += x = std::exp(x - maximum);
    result.lse = maximum + std::log(result.sum);
    return result;
  }

  Statistics statistics_row(i64 sequence, i64 head, i64 row) {
    const i64 key = (sequence * problem_.num_heads_q + head) * kMaxSeqlen + row;
    if (const auto found = statistics_.find(key); found != statistics_.end()) return found->second;
    const OutputRow forward = forward_row(sequence, head, row);
    const std::vector<Real> dout = query(tensors_.dout, problem_.head_dim_v, sequence, head, row);
    Statistics result{forward.lse, 0};
    for (i64 d = 0; d < problem_.head_dim_v; ++d) result.delta += dout[d] * forward.out[d];
    if (given(tensors_.dlse)) {
      const Sequence& s = sequences_[sequence];
      result.delta -= load(tensors_.dlse, lse_offset(tensors_.dlse, s.q_batch, head, s.q_row_begin + row));
    }
    return statistics_[key] = result;
  }

  Pair gradient_pair(const Head& kv, i64 key, const std::vector<Real>& q, const std::vector<Real>& dout,
                     const Statistics& statistics) const {
    const Capped<Real> s = score(kv, key, q);
    Real dp = 0;
    for (i64 d = 0; d < problem_.head_dim_v; ++d) dp += dout[d] * kv.v[key * problem_.head_dim_v + d];
    const Real p = std::exp(s.score - statistics.lse);
    return {p, p * (dp - statistics.delta) * s.slope};
  }

  void accumulate(const Pair& pair, const std::vector<Real>& q, const std::vector<Real>& dout, Real* dk, Real* dv) const {
    for (i64 d = 0; d < problem_.head_dim; ++d) dk[d] += round(pair.ds) * q[d];
    for (i64 d = 0; d < problem_.head_dim_v; ++d) dv[d] += round(pair.p) * dout[d];
  }

  // One query row's share of all three gradients; dk and dv stay unscaled and unrounded until all rows are in.
  void backward_row(i64 sequence, i64 head, i64 row, BackwardResult<Real>& result) {
    const Sequence& s = sequences_[sequence];
    const i64 head_kv = head / group_size(problem_);
    const Statistics statistics = statistics_row(sequence, head, row);
    const Head& kv = load_head(sequence, head_kv);
    const std::vector<Real> q = query(tensors_.q, problem_.head_dim, sequence, head, row);
    const std::vector<Real> dout = query(tensors_.dout, problem_.head_dim_v, sequence, head, row);
    Real* dq = result.dq.data() + contiguous_q(s, head, row) * problem_.head_dim;
    for (i32 j = 0; j < s.seqlen_kv; ++j) {
      if (!visible(s.mask, static_cast<i32>(row) + s.mask.query_offset, j)) continue;
      const Pair pair = gradient_pair(kv, j, q, dout, statistics);
      for (i64 d = 0; d < problem_.head_dim; ++d) dq[d] += round(pair.ds) * kv.k[j * problem_.head_dim + d];
      const i64 key = contiguous_kv(s, head_kv, j);
      accumulate(pair, q, dout, result.dk.data() + key * problem_.head_dim, result.dv.data() + key * problem_.head_dim_v);
    }
    for (i64 d = 0; d < problem_.head_dim; ++d) dq[d] = round(dq[d] * scale());
  }

  void unavoidable_error_row(i64 sequence, i64 head, i64 row, double unit, BackwardResult<double>& result) {
    const Sequence& s = sequences_[sequence];
    const i64 dim = problem_.head_dim, dim_v = problem_.head_dim_v, head_kv = head / group_size(problem_);
    const OutputRow forward = forward_row(sequence, head, row);
    const Head& kv = load_head(sequence, head_kv);
    const std::vector<Real> q = query(tensors_.q, dim, sequence, head, row);
    const std::vector<Real> dout = query(tensors_.dout, dim_v, sequence, head, row);
    const double delta = statistics_row(sequence, head, row).delta;
    // Roundings of out that differ from element to element, and one that all share (v constant along a row).
    double common = 0, delta_square = 0;
    for (i64 d = 0; d < dim_v; ++d) {
      common += dout[d] * forward.out[d];
      delta_square += dout[d] * forward.out[d] * dout[d] * forward.out[d];
    }
    delta_square += common * common;
    for (i32 j = 0; j < s.seqlen_kv; ++j) {
      if (!visible(s.mask, static_cast<i32>(row) + s.mask.query_offset, j)) continue;
      const Capped<Real> capped = score(kv, j, q);
      double dp = 0, dp_terms = 0;
      for (i64 d = 0; d < dim_v; ++d) {
        dp += dout[d] * kv.v[j * dim_v + d];
        dp_terms += std::abs(dout[d] * kv.v[j * dim_v + d]);
      }
      const double p = std::exp(capped.score - forward.lse);
      const double p_error = 0x1p-24 * (std::abs(capped.score) + std::abs(forward.lse));  // relative
      const double ds_error = p * capped.slope * std::abs(problem_.scale) *
                              (unit * std::sqrt(delta_square) + 0x1p-23 * dp_terms + p_error * std::abs(dp - delta));
      const i64 key = contiguous_kv(s, head_kv, j);
      for (i64 d = 0; d < dim; ++d) {
        result.dq[contiguous_q(s, head, row) * dim + d] += ds_error * std::abs(kv.k[j * dim + d]);
        result.dk[key * dim + d] += ds_error * std::abs(q[d]);
      }
      for (i64 d = 0; d < dim_v; ++d) result.dv[key * dim_v + d] += p * p_error * std::abs(dout[d]);
    }
  }

  Problem problem_;
  std::span<const Sequence> sequences_;
  BackwardTensors tensors_;
  Head head_;
  std::unordered_map<i64, Statistics> statistics_;
};

}  // namespace reference
}  // namespace ISO_TARGET
}  // namespace iso
