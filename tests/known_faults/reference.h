// The right values of an Attention: float64 from the definition, and how far a result may be from it. This reference knows
// nothing of mask descriptors, layouts or plans: each test says in one predicate what a row sees, so that a fault in
// validation or in the resolution of a mask shows as well as one in a kernel.
#pragma once

#include "known_faults/fixture.h"

namespace iso::known_faults {

// One result in float64, contiguous and in the order of its buffer. Where nothing was `reached` (rows that see nothing,
// keys that nobody sees, padding) the value must be exactly this one.
struct Result {
  std::vector<double> value;
  std::vector<bool> reached;
  double magnitude = 0;  // the largest sum of absolute terms: what rounding errors are relative to where terms cancel
  explicit Result(const Buffer& like, double empty = 0.0) {
    size_t n = 1;
    for (int64_t extent : like.shape()) n *= static_cast<size_t>(extent);
    value.assign(n, empty), reached.assign(n, false);
  }
  // The elements [begin, begin + count), which a visible pair contributes to.
  double* reach(int64_t begin, int64_t count) {
    std::fill_n(reached.begin() + begin, count, true);
    return &value[begin];
  }
};
struct Values {
  Result out, lse, dq, dk, dv, dsink, dbias;
};

inline double largest(const double* x, int64_t count) {
  double most = 0;
  for (int64_t n = 0; n < count; ++n) most = std::max(most, std::abs(x[n]));
  return most;
}

// Attention straight from the definition, over what `a.visible` allows. With `rounded`, the way a careful 16-bit
// implementation rounds: P, dS and the results in the tensors' type, statistics in float64.
inline Values reference(const Attention& a, bool rounded = false) {
  const Sizes& s = a.sizes;
  const isoflash_problem& p = a.problem;
  Values r{Result(a.out), Result(a.lse, -kInf), Result(a.q), Result(a.k), Result(a.v), Result(a.sink), Result(a.bias)};
  const bool backward = a.page_size == 0;
  std::vector<double> dbias_magnitude(r.dbias.value.size());
  const auto narrow = [&](double x) { return rounded ? round_to(a.dtype, x) : x; };
  const double scale = std::isnan(p.scale) ? 1.0 / std::sqrt(static_cast<double>(s.head_dim)) : p.scale;
  const auto q_offset = [&](int64_t b, int64_t i, int64_t h, int64_t dim) {
    return (((a.is_packed ? 0 : b * s.seqlen_q) + a.begin_q[b] + i) * s.num_heads_q + h) * dim;
  };
  const auto kv_offset = [&](int64_t b, int64_t j, int64_t h, int64_t dim) {
    return (((a.is_packed ? 0 : b * s.seqlen_kv) + a.begin_kv[b] + j) * s.num_heads_kv + h) * dim;
  };
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.num_heads_q; ++h) {
      const int64_t g = h / (s.num_heads_q / s.num_heads_kv);
      // The head's rows, read once; rows that nobody may see are read too, but never enter a sum.
      std::vector<double> k(a.length_kv[b] * s.head_dim), v(a.length_kv[b] * s.head_dim_v);
      for (int64_t j = 0; j < a.length_kv[b]; ++j) {
        for (int64_t d = 0; d < s.head_dim; ++d) k[j * s.head_dim + d] = a.k.get(a.kv_row(b, j, g, d));
        for (int64_t d = 0; d < s.head_dim_v; ++d) v[j * s.head_dim_v + d] = a.v.get(a.kv_row(b, j, g, d));
      }
      std::vector<double> q(s.head_dim), dout(s.head_dim_v), weight(a.length_kv[b]), slope(a.length_kv[b]);
      std::vector<double> dk_magnitude(a.length_kv[b]), dv_magnitude(a.length_kv[b]);
      for (int64_t i = 0; i < a.length_q[b]; ++i) {
        for (int64_t d = 0; d < s.head_dim; ++d) q[d] = a.q.get(a.q_row(b, i, h, d));
        for (int64_t d = 0; d < s.head_dim_v; ++d) dout[d] = a.dout.get(a.q_row(b, i, h, d));
        std::vector<int64_t> keys;
        double top = -kInf, sum = 0;
        for (int64_t j = 0; j < a.length_kv[b]; ++j) {
          if (!a.visible(b, i, j)) continue;
          double score = 0;
          for (int64_t d = 0; d < s.head_dim; ++d) score += q[d] * k[j * s.head_dim + d];
          score *= scale, slope[j] = 1;
          if (p.softcap_kind == ISOFLASH_SOFTCAP_TANH) {
            const double t = std::tanh(score / p.softcap);
            score = p.softcap * t, slope[j] = 1 - t * t;
          } else if (p.softcap_kind == ISOFLASH_SOFTCAP_SOFT_SIGN) {
            const double shrink = 1 / (1 + std::abs(score) / p.softcap);
            score *= shrink, slope[j] = shrink * shrink;
          }
          if (a.has_bias()) score += a.bias.get(a.bias_at(b, h, i, j));
          if (score == -kInf) continue;  // a bias of -inf: as if the key were not there
          weight[j] = score, top = std::max(top, score);
          keys.push_back(j);
        }
        const Index at = a.lse_at(b, h, i);
        const int64_t lse_offset =
            a.is_packed ? at[0] * s.seqlen_q + at[1] : (at[0] * s.num_heads_q + at[1]) * s.seqlen_q + at[2];
        const double sink = a.has_sink() ? a.sink.get({h}) : -kInf;
        if (keys.empty()) {
          r.lse.value[lse_offset] = sink;
          if (a.has_sink() && !a.dlse.shape().empty() && sink > -kInf) *r.dsink.reach(h, 1) += a.dlse.get(at);
          continue;
        }
        top = std::max(top, sink), sum = std::exp(sink - top);
        for (int64_t j : keys) sum += std::exp(weight[j] - top);
        const double lse = top + std::log(sum);
        double* out = r.out.reach(q_offset(b, i, h, s.head_dim_v), s.head_dim_v);
        double delta = 0, delta_magnitude = 0, out_magnitude = 0, dq_magnitude = 0;
        for (int64_t j : keys) {
          weight[j] = std::exp(weight[j] - lse);
          for (int64_t d = 0; d < s.head_dim_v; ++d) out[d] += narrow(weight[j]) * v[j * s.head_dim_v + d];
          out_magnitude += weight[j] * largest(&v[j * s.head_dim_v], s.head_dim_v);
        }
        for (int64_t d = 0; d < s.head_dim_v; ++d) {
          out[d] = narrow(out[d]);
          delta += out[d] * dout[d], delta_magnitude += std::abs(out[d] * dout[d]);
        }
        *r.lse.reach(lse_offset, 1) = lse;
        r.out.magnitude = std::max(r.out.magnitude, out_magnitude);
        if (!backward) continue;
        if (!a.dlse.shape().empty()) delta -= a.dlse.get(at), delta_magnitude += std::abs(a.dlse.get(at));
        double* dq = r.dq.reach(q_offset(b, i, h, s.head_dim), s.head_dim);
        for (int64_t j : keys) {
          double dp = 0, ds_magnitude = delta_magnitude;
          for (int64_t d = 0; d < s.head_dim_v; ++d) {
            const double term = dout[d] * v[j * s.head_dim_v + d];
            dp += term, ds_magnitude += std::abs(term);
          }
          if (a.has_bias()) {
            const int64_t offset = a.bias.offset_in_order(a.bias_at(b, h, i, j));
            *r.dbias.reach(offset, 1) += weight[j] * (dp - delta);
            dbias_magnitude[offset] += weight[j] * ds_magnitude;
          }
          const double ds = narrow(weight[j] * (dp - delta) * slope[j]);
          double* dk = r.dk.reach(kv_offset(b, j, g, s.head_dim), s.head_dim);
          double* dv = r.dv.reach(kv_offset(b, j, g, s.head_dim_v), s.head_dim_v);
          for (int64_t d = 0; d < s.head_dim; ++d) dq[d] += scale * ds * k[j * s.head_dim + d], dk[d] += scale * ds * q[d];
          for (int64_t d = 0; d < s.head_dim_v; ++d) dv[d] += narrow(weight[j]) * dout[d];
          ds_magnitude *= weight[j] * std::abs(scale);
          dq_magnitude += ds_magnitude * largest(&k[j * s.head_dim], s.head_dim);
          dk_magnitude[j] += ds_magnitude * largest(q.data(), s.head_dim);
          dv_magnitude[j] += weight[j] * largest(dout.data(), s.head_dim_v);
        }
        if (a.has_sink() && sink > -kInf) {
          *r.dsink.reach(h, 1) -= std::exp(sink - lse) * delta;
          r.dsink.magnitude += std::exp(sink - lse) * delta_magnitude;
        }
        r.dq.magnitude = std::max(r.dq.magnitude, dq_magnitude);
      }
      for (int64_t j = 0; j < a.length_kv[b]; ++j) {
        r.dk.magnitude = std::max(r.dk.magnitude, dk_magnitude[j]);
        r.dv.magnitude = std::max(r.dv.magnitude, dv_magnitude[j]);
      }
    }
  }
  for (double x : dbias_magnitude) r.dbias.magnitude = std::max(r.dbias.magnitude, x);
  for (auto* gradient : {&r.dq, &r.dk, &r.dv})
    for (double& x : gradient->value) x = narrow(x);
  return r;
}

inline std::vector<double> values_of(const Buffer& buffer) {
  std::vector<double> values;
  buffer.for_each([&](Index i) { values.push_back(buffer.get(i)); });
  return values;
}

// Infinities, NaN and whatever no visible pair reaches must be there exactly; the rest may be twice as far off as the
// yardstick, and a little more for sums in float32.
// The gradients of sink and bias are float32, but made from an `out` of the tensors' `type`.
inline void expect_near(const char* name, const Buffer& buffer, const Result& truth, const Result& yardstick,
                        isoflash_dtype type) {
  const std::vector<double> got = values_of(buffer);
  ASSERT_EQ(got.size(), truth.value.size());
  double most = 0, allowed = 0;
  for (size_t n = 0; n < got.size(); ++n) {
    if (!std::isfinite(truth.value[n])) continue;
    most = std::max(most, std::abs(truth.value[n]));
    allowed = std::max(allowed, std::abs(yardstick.value[n] - truth.value[n]));
  }
  const double unit = type == ISOFLASH_BF16 ? 0x1p-8 : type == ISOFLASH_F16 ? 0x1p-11 : 1e-5;
  allowed = 2 * allowed + unit * most + 4e-6 * truth.magnitude;
  for (size_t n = 0; n < got.size(); ++n) {
    const double right = truth.value[n];
    const bool same = !truth.reached[n] || std::isinf(right) ? got[n] == right
                      : std::isnan(right)                    ? std::isnan(got[n])
                                                             : std::abs(got[n] - right) <= allowed;
    if (same) continue;
    ADD_FAILURE() << name << ": element " << n << " in logical order is " << got[n] << ", right is " << right
                  << (truth.reached[n] ? " within " + std::to_string(allowed) : " exactly: nothing visible reaches it");
    return;
  }
}

// out, lse, dq, dk, dv of the last run() against the reference.
inline void expect_right(const Attention& a) {
  const Values truth = reference(a), yardstick = a.dtype == ISOFLASH_F32 ? truth : reference(a, true);
  expect_near("out", a.out, truth.out, yardstick.out, a.dtype);
  expect_near("lse", a.lse, truth.lse, truth.lse, ISOFLASH_F32);
  if (a.page_size > 0) return;
  expect_near("dq", a.dq, truth.dq, yardstick.dq, a.dtype);
  expect_near("dk", a.dk, truth.dk, yardstick.dk, a.dtype);
  expect_near("dv", a.dv, truth.dv, yardstick.dv, a.dtype);
  if (a.has_sink()) expect_near("dsink", a.dsink, truth.dsink, yardstick.dsink, a.dtype);
  if (a.has_bias()) expect_near("dbias", a.dbias, truth.dbias, yardstick.dbias, a.dtype);
}

inline void expect_same_bits(const Buffer& x, const Buffer& y, const char* what) {
  int64_t different = 0;
  x.for_each([&](Index i) {
    const float a = static_cast<float>(x.get(i)), b = static_cast<float>(y.get(i));
    different += float_bits(a) != float_bits(b);
  });
  EXPECT_EQ(different, 0) << what << ": elements that differ";
}
inline void expect_same_bits(const Attention& x, const Attention& y) {
  expect_same_bits(x.out, y.out, "out");
  expect_same_bits(x.lse, y.lse, "lse");
  if (x.page_size > 0 || y.page_size > 0) return;
  expect_same_bits(x.dq, y.dq, "dq");
  expect_same_bits(x.dk, y.dk, "dk");
  expect_same_bits(x.dv, y.dv, "dv");
}

}  // namespace iso::known_faults
