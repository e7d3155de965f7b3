#include "verify.h"

#include <algorithm>
#include <set>
#include <span>

#include "conformance/tolerance.h"
#include "core/reference.h"
#include "oracle_problem.h"

namespace iso::tool {
namespace {

constexpr i64 kSampledSequences = 8;
// Numbers compared at a time: enough for the tolerance model's statistics, little enough to hold.
constexpr std::size_t kPoolSize = std::size_t{1} << 22;
// Pairs of a row and a key, over all heads, up to which a sample includes dsink: the oracle needs seconds for so many.
constexpr double kMostPairsForSink = 1e7;

// Collects rows of one output and compares them in pools.
class Pool {
 public:
  Pool(const char* output, const isoflash_tensor& tensor) : tensor_(core_tensor(tensor)), result_{.output = output} {}

  bool wanted() const { return given(tensor_); }
  const Tensor& tensor() const { return tensor_; }

  // `truth` and `yardstick` against the elements from `offset` on, `step` apart.
  void add(std::span<const double> truth, std::span<const float> yardstick, i64 offset, i64 step) {
    truth_.insert(truth_.end(), truth.begin(), truth.end());
    yardstick_.insert(yardstick_.end(), yardstick.begin(), yardstick.end());
    for (std::size_t n = 0; n < truth.size(); ++n)
      got_.push_back(reference::load(tensor_, offset + static_cast<i64>(n) * step));
    ++result_.rows;
    if (truth_.size() >= kPoolSize) compare();
  }

  Verified finish() {
    compare();
    return result_;
  }

 private:
  void compare() {
    using namespace conformance;
    double largest = 0;
    for (const double x : truth_)
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    const double error = distance(truth_, got_).maximum;
    const double allowed = 2 * distance(truth_, yardstick_).maximum + rounding_floor(tensor_.dtype) * largest;
    if (error >= result_.error) {
      result_.error = error;
      result_.allowed = allowed;
    }
    if (result_.finding.empty())
      result_.finding = conformance::compare(result_.output, tensor_.dtype, truth_, yardstick_, got_);
    truth_.clear();
    yardstick_.clear();
    got_.clear();
  }

  Tensor tensor_;
  Verified result_;
  std::vector<double> truth_;
  std::vector<float> yardstick_, got_;
};

// Sequences to look at: all, or the shortest, the longest and some of the lengths in between.
std::vector<i64> chosen_sequences(const std::vector<Sequence>& sequences, VerifyMode mode) {
  std::vector<i64> order(sequences.size());
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = static_cast<i64>(n);
  const i64 count = static_cast<i64>(order.size());
  if (mode == VerifyMode::full || count <= kSampledSequences) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](i64 a, i64 b) { return sequences[a].seqlen_kv < sequences[b].seqlen_kv; });
  std::vector<i64> chosen;
  for (i64 n = 0; n < kSampledSequences; ++n) chosen.push_back(order[n * (count - 1) / (kSampledSequences - 1)]);
  return chosen;
}

// Positions to look at out of `rows`: all, or those around the borders of the mask's parts and some in between.
// `offset` is the position of row 0.
std::vector<i32> chosen_rows(const MaskSpec& mask, i32 rows, i32 offset, VerifyMode mode) {
  std::vector<i32> all(rows);
  for (i32 n = 0; n < rows; ++n) all[n] = n;
  if (mode == VerifyMode::full) return all;
  std::set<i32> chosen;
  for (const i32 border : {0, mask.context_end, mask.history_end, mask.candidate_begin, mask.candidate_end})
    for (const i32 row : {border - offset - 1, border - offset})
      if (row >= 0 && row < rows) chosen.insert(row);
  for (i32 n = 0; n <= 4 && rows > 0; ++n) chosen.insert(static_cast<i32>(static_cast<i64>(rows - 1) * n / 4));
  return {chosen.begin(), chosen.end()};
}

class Verifier {
 public:
  Verifier(const isoflash::Problem& call, const isoflash::Backward& t, VerifyMode mode)
      : mode_(mode),
        oracle_(oracle_problem(call)),
        inputs_(inputs_of(call, t)),
        truth_(oracle_.problem, oracle_.sequences, inputs_),
        yardstick_(oracle_.problem, oracle_.sequences, inputs_),
        out_("out", t.out),
        lse_("lse", t.lse),
        dq_("dq", t.dq),
        dk_("dk", t.dk),
        dv_("dv", t.dv),
        dsink_("dsink", t.dsink),
        dbias_("dbias", t.dbias) {}

  std::vector<Verified> run(const std::function<void(i64, i64)>& progress) {
    const std::vector<i64> sequences = chosen_sequences(oracle_.sequences, mode_);
    for (std::size_t n = 0; n < sequences.size(); ++n) {
      progress(static_cast<i64>(n), static_cast<i64>(sequences.size()));
      check_queries(sequences[n]);
      check_keys(sequences[n]);
    }
    check_sink();
    std::vector<Verified> findings;
    for (Pool* pool : {&out_, &lse_, &dq_, &dk_, &dv_, &dsink_, &dbias_})
      if (pool->wanted() && (pool != &dsink_ || sink_checked())) findings.push_back(pool->finish());
    return findings;
  }

 private:
  static reference::Inputs inputs_of(const isoflash::Problem& call, const isoflash::Backward& t) {
    reference::Inputs inputs{BackwardTensors{}};
    inputs.q = core_tensor(call.q);
    inputs.k = core_tensor(call.k);
    inputs.v = core_tensor(call.v);
    inputs.k_new = core_tensor(call.k_new);
    inputs.v_new = core_tensor(call.v_new);
    inputs.sink = core_tensor(call.sink);
    inputs.bias = core_tensor(call.bias);
    inputs.dout = core_tensor(t.dout);
    inputs.dlse = core_tensor(t.dlse);
    return inputs;
  }

  void add_row(Pool& pool, std::span<const double> truth, std::span<const float> yardstick, i64 batch, i64 row, i64 head) {
    const Tensor& t = pool.tensor();
    pool.add(truth, yardstick, reference::row_offset(t, batch, row, head), t.strides[t.rank - 1]);
  }

  void check_queries(i64 b) {
    const Sequence& s = oracle_.sequences[b];
    const std::vector<i32> rows = chosen_rows(s.mask, s.seqlen_q, s.mask.query_offset, mode_);
    if (rows.empty()) return;  // tensors without rows may have any number of heads
    for (i64 head = 0; head < oracle_.problem.num_heads_q; ++head) {
      for (const i32 row : rows) {
        const auto truth = truth_.forward_row(b, head, row);
        const auto yardstick = yardstick_.forward_row(b, head, row);
        const i64 place = s.q_row_begin + row;
        if (out_.wanted()) add_row(out_, truth.out, yardstick.out, s.q_batch, place, head);
        if (lse_.wanted())
          lse_.add({&truth.lse, 1}, {&yardstick.lse, 1}, reference::lse_offset(lse_.tensor(), s.q_batch, head, place), 1);
        if (dq_.wanted())
          add_row(dq_, truth_.dq_row(b, head, row), yardstick_.dq_row(b, head, row), s.q_batch, place, head);
        if (dbias_.wanted()) add_bias_row(s, head, place);
      }
    }
  }

  void check_keys(i64 b) {
    if (!dk_.wanted() && !dv_.wanted()) return;
    const Sequence& s = oracle_.sequences[b];
    const std::vector<i32> keys = chosen_rows(s.mask, s.seqlen_kv, 0, mode_);
    if (keys.empty()) return;
    for (i64 head = 0; head < oracle_.problem.num_heads_kv; ++head) {
      for (const i32 key : keys) {
        const auto truth = truth_.dkv_row(b, head, key);
        const auto yardstick = yardstick_.dkv_row(b, head, key);
        const i64 place = s.kv_row_begin + key;
        if (dk_.wanted()) add_row(dk_, truth.dk, yardstick.dk, s.kv_batch, place, head);
        if (dv_.wanted()) add_row(dv_, truth.dv, yardstick.dv, s.kv_batch, place, head);
      }
    }
  }

  // Rows of the bias that stand for several are compared once.
  void add_bias_row(const Sequence& s, i64 head, i64 place) {
    const Tensor& t = dbias_.tensor();
    const i64 offset = reference::bias_offset(t, s.q_batch, head, place, 0);
    if (!bias_rows_.insert(offset).second) return;
    const auto within = [&](int axis, i64 index) { return axis >= 0 && t.shape[axis] == 1 ? 0 : index; };
    const i64 batch = within(t.rank - 4, s.q_batch), h = within(t.rank - 3, head), row = within(t.rank - 2, place);
    dbias_.add(truth_.dbias_row(batch, h, row), yardstick_.dbias_row(batch, h, row), offset, t.strides[t.rank - 1]);
  }

  bool sink_checked() const {
    double pairs = 0;
    for (const Sequence& s : oracle_.sequences) pairs += static_cast<double>(s.seqlen_q) * s.seqlen_kv;
    return mode_ == VerifyMode::full || pairs * static_cast<double>(oracle_.problem.num_heads_q) <= kMostPairsForSink;
  }
  void check_sink() {
    if (!dsink_.wanted() || !sink_checked()) return;
    for (i64 head = 0; head < oracle_.problem.num_heads_q; ++head) {
      const double truth = truth_.dsink(head);
      const float yardstick = yardstick_.dsink(head);
      dsink_.add({&truth, 1}, {&yardstick, 1}, head * dsink_.tensor().strides[0], 1);
    }
  }

  VerifyMode mode_;
  OracleProblem oracle_;
  reference::Inputs inputs_;
  reference::Reference<reference::Float64> truth_;
  reference::Reference<reference::MixedPrecision> yardstick_;
  Pool out_, lse_, dq_, dk_, dv_, dsink_, dbias_;
  std::set<i64> bias_rows_;  // of dbias, compared already
};

}  // namespace

std::vector<Verified> verify(const isoflash::Problem& call, const isoflash::Backward& tensors, VerifyMode mode,
                             const std::function<void(i64 done, i64 total)>& progress) {
  if (mode == VerifyMode::off) return {};
  return Verifier(call, tensors, mode).run(progress);
}

}  // namespace iso::tool
