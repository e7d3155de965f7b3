#include "conformance/runner.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "conformance/tolerance.h"
#include "core/reference.h"

namespace iso::conformance {
namespace {

using reference::Float64;
using reference::MixedPrecision;
using reference::Reference;

// The outputs of one run, bit for bit, and where each element belongs.
struct Bits {
  std::vector<u32> out, lse, dq, dk, dv, dsink, dbias;
  bool operator==(const Bits&) const = default;
};
struct Output {
  const char* name;
  std::vector<u32> Bits::*bits;
};
constexpr Output kOutputs[] = {{"out", &Bits::out}, {"lse", &Bits::lse},     {"dq", &Bits::dq},      {"dk", &Bits::dk},
                               {"dv", &Bits::dv},   {"dsink", &Bits::dsink}, {"dbias", &Bits::dbias}};

// A case under test: plans and runs it, and collects failures.
class Examination {
 public:
  Examination(const Case& c, const Target& target, u64 seed)
      : case_(c),
        target_(target),
        seed_(seed),
        problem_(problem_of(c)),
        layout_(layout_of(c)),
        sequences_(layout_.sequences),
        visible_pairs_(visible_pairs()) {}

  void forward_values();
  void gradient_values();
  void bounds();
  void determinism();
  void isolation();

  Outcome outcome;

 private:
  // Changes some inputs before a run.
  using Change = std::function<void(CaseTensors&)>;

  // Marks what visible pairs reach: the rest of the results is exactly what nothing gives.
  struct Reached {
    std::vector<bool> query_rows, key_rows, bias;  // (row, head), as the tensors have them
  };

  void fail(std::string what) {
    if (!what.empty()) outcome.failures.push_back(std::move(what));
  }
  bool failed() const { return !outcome.failures.empty() || !outcome.unsupported.empty(); }

  i64 visible_pairs() const;
  // Runs forward, and backward if the case has one; false (and a failure noted) if a call fails.
  bool run(CaseTensors& tensors, int num_threads);
  Bits run_changed(const Change& change, int num_threads = 1);
  void expect_same(const Bits& expected, const Bits& got, const std::string& when);

  // Calls visit(index of the row in tensors that hold one row per (row, head)) for a sequence's row, each head.
  template <class Visit>
  void for_q_row(i64 sequence, i64 row, Visit&& visit) const;
  template <class Visit>
  void for_kv_row(i64 sequence, i64 row, Visit&& visit) const;
  void expect_query_rows(const Bits& expected, const Bits& got, i64 sequence, i64 row, const std::string& when);
  void expect_key_rows(const Bits& expected, const Bits& got, i64 sequence, i64 key, const std::string& when);

  Reached reached(const CaseTensors& tensors) const;
  void expect_exact_zeros(const CaseTensors& tensors);

  void poison_padding(const Bits& clean, float poison);
  void poison_other_sequences(const Bits& clean, float poison);
  void poison_candidates(const Bits& clean, float poison);
  void change_hidden_keys(const Bits& clean);
  void change_blind_queries(const Bits& clean);

  void change_q(CaseTensors& t, i64 sequence, i64 row, const std::function<float(float)>& change) const;
  void change_kv(CaseTensors& t, i64 sequence, i64 key, const std::function<float(float)>& change) const;
  void change_bias(CaseTensors& t, i64 sequence, const std::function<float(float)>& change) const;
  // Rows of k and v that are nobody's key.
  void change_unused_keys(CaseTensors& t, const std::function<float(float)>& change) const;
  bool keys_are_shared() const { return case_.strides == Strides::expanded; }
  bool mask_only() const { return case_.intervals.count == 0 && case_.blocks.block_m == 0; }
  bool seen_by_some_head(const Sequence& s, i32 row, i32 key) const {
    for (i64 head = 0; head < problem_.num_heads_q; ++head)
      if (visible(s, head, row, key)) return true;
    return false;
  }

  const Case& case_;
  const Target& target_;
  u64 seed_;
  Problem problem_;
  Layout layout_;
  const std::vector<Sequence>& sequences_;
  i64 visible_pairs_;
};

// Visible pairs per query head, the mean of the heads rounded down.
i64 Examination::visible_pairs() const {
  i64 pairs = 0;
  for (const Sequence& s : sequences_)
    for (i64 head = 0; head < problem_.num_heads_q; ++head)
      for (i32 i = 0; i < s.seqlen_q; ++i)
        for (i32 j = 0; j < s.seqlen_kv; ++j) pairs += visible(s, head, i, j) ? 1 : 0;
  return pairs / problem_.num_heads_q;
}

bool Examination::run(CaseTensors& tensors, int num_threads) {
  const auto call = Call::prepare(case_, layout_.arrays, tensors, target_, num_threads);
  if (!call) {
    if (call.error().unsupported)
      outcome.unsupported = call.error().message;
    else
      fail(call.error().message);
    return false;
  }
  if (call->visible_pairs() != visible_pairs_)
    fail(fmt::format("the plan counts {} visible pairs instead of {}", call->visible_pairs(), visible_pairs_));
  fail(call->forward(tensors));
  if (case_.backward && !failed()) fail(call->backward(tensors));
  return !failed();
}

void Examination::forward_values() {
  CaseTensors tensors = make_tensors(case_, layout_, seed_);
  if (!run(tensors, 1)) return;
  const auto truth = Reference<Float64>(problem_, sequences_, tensors.oracle_inputs()).forward();
  const auto yardstick = Reference<MixedPrecision>(problem_, sequences_, tensors.oracle_inputs()).forward();
  fail(compare("out", case_.dtype, truth.out, yardstick.out, values(tensors.at.out)));
  fail(compare("lse", DType::f32, truth.lse, yardstick.lse, values(tensors.at.lse)));
  expect_exact_zeros(tensors);
}

void Examination::gradient_values() {
  if (!case_.backward) return;
  CaseTensors tensors = make_tensors(case_, layout_, seed_);
  if (!run(tensors, 1)) return;
  const auto truth = Reference<Float64>(problem_, sequences_, tensors.oracle_inputs()).backward();
  const auto yardstick = Reference<MixedPrecision>(problem_, sequences_, tensors.oracle_inputs()).backward();
  const auto noise =
      Reference<Float64>(problem_, sequences_, tensors.oracle_inputs()).unavoidable_error(rounding_floor(case_.dtype));
  fail(compare("dq", case_.dtype, truth.dq, yardstick.dq, values(tensors.at.dq), noise.dq));
  fail(compare("dk", case_.dtype, truth.dk, yardstick.dk, values(tensors.at.dk), noise.dk));
  fail(compare("dv", case_.dtype, truth.dv, yardstick.dv, values(tensors.at.dv), noise.dv));
  if (problem_.sink)
    fail(compare("dsink", DType::f32, truth.dsink, yardstick.dsink, values(tensors.at.dsink), noise.dsink));
  if (problem_.bias)
    fail(compare("dbias", DType::f32, truth.dbias, yardstick.dbias, values(tensors.at.dbias), noise.dbias));
  expect_exact_zeros(tensors);
}

Examination::Reached Examination::reached(const CaseTensors& tensors) const {
  Reached r;
  const i64 slots_q = problem_.packed ? 1 : problem_.batch;
  const i64 slots_kv = problem_.kv_layout == KvLayout::packed ? 1 : problem_.batch;
  r.query_rows.assign(slots_q * problem_.rows_q * problem_.num_heads_q, false);
  if (case_.backward) r.key_rows.assign(slots_kv * problem_.rows_kv * problem_.num_heads_kv, false);
  Tensor dbias = tensors.at.dbias;
  i64 size = given(dbias) ? 1 : 0;
  for (i32 axis = dbias.rank - 1; axis >= 0; --axis) {
    dbias.strides[axis] = size;
    size *= dbias.shape[axis];
  }
  r.bias.assign(size, false);
  for (const Sequence& s : sequences_) {
    for (i64 head = 0; head < problem_.num_heads_q; ++head) {
      for (i32 i = 0; i < s.seqlen_q; ++i) {
        for (i32 j = 0; j < s.seqlen_kv; ++j) {
          if (!visible(s, head, i, j)) continue;
          const i64 row = s.q_row_begin + i;
          if (problem_.bias &&
              std::isinf(element(tensors.at.bias, reference::bias_offset(tensors.at.bias, s.q_batch, head, row, j))))
            continue;
          r.query_rows[(s.q_batch * problem_.rows_q + row) * problem_.num_heads_q + head] = true;
          if (!case_.backward) continue;
          r.key_rows[(s.kv_batch * problem_.rows_kv + s.kv_row_begin + j) * problem_.num_heads_kv +
                     head / group_size(problem_)] = true;
          if (given(dbias)) r.bias[reference::bias_offset(dbias, s.q_batch, head, row, j)] = true;
        }
      }
    }
  }
  return r;
}

void Examination::expect_exact_zeros(const CaseTensors& tensors) {
  if (failed()) return;
  const Reached r = reached(tensors);
  const auto expect = [&](const char* name, const Tensor& t, const std::vector<bool>& reached_rows, i64 dim) {
    if (!given(t)) return;
    const std::vector<float> got = values(t);
    for (std::size_t n = 0; n < got.size(); ++n)
      if (!reached_rows[n / dim] && got[n] != 0)
        return fail(fmt::format("{}[{}] is {}, but nothing that is seen reaches it", name, n, got[n]));
  };
  expect("out", tensors.at.out, r.query_rows, problem_.head_dim_v);
  expect("dq", tensors.at.dq, r.query_rows, problem_.head_dim);
  expect("dk", tensors.at.dk, r.key_rows, problem_.head_dim);
  expect("dv", tensors.at.dv, r.key_rows, problem_.head_dim_v);
  expect("dbias", tensors.at.dbias, r.bias, 1);
}

Bits bits_of(const CaseTensors& tensors) {
  const BackwardTensors& t = tensors.at;
  Bits bits{element_bits(t.out), element_bits(t.lse), {}, {}, {}, {}, {}};
  if (given(t.dq)) bits.dq = element_bits(t.dq), bits.dk = element_bits(t.dk), bits.dv = element_bits(t.dv);
  if (given(t.dsink)) bits.dsink = element_bits(t.dsink);
  if (given(t.dbias)) bits.dbias = element_bits(t.dbias);
  return bits;
}

Bits Examination::run_changed(const Change& change, int num_threads) {
  CaseTensors tensors = make_tensors(case_, layout_, seed_);
  if (change) change(tensors);
  return run(tensors, num_threads) ? bits_of(tensors) : Bits{};
}

// Call checks every write outside the outputs' elements; here, that each element was written (outputs start as NaN), and
// that of the gradients those and only those asked for are.
void Examination::bounds() {
  const auto poison = [&](const Output& output) {
    const bool f32 = output.bits == &Bits::lse || output.bits == &Bits::dsink || output.bits == &Bits::dbias;
    return !f32 && dtype_size(case_.dtype) == 2 ? 0xffffu : 0xffffffffu;
  };
  CaseTensors tensors = make_tensors(case_, layout_, seed_);
  if (!run(tensors, 2)) return;
  const Bits all = bits_of(tensors);
  for (const Output& output : kOutputs)
    if (std::count((all.*output.bits).begin(), (all.*output.bits).end(), poison(output)) != 0)
      fail(fmt::format("an element of {} was not written", output.name));
  if (!case_.backward) return;

  for (const Wanted wanted : {Wanted{true, false, false, false, false}, Wanted{false, true, false, false, false},
                              Wanted{false, false, true, false, false}, Wanted{false, true, true, true, false},
                              Wanted{false, false, false, true, false}, Wanted{false, false, false, false, true}}) {
    const bool asked[] = {true, true, wanted.dq, wanted.dk, wanted.dv, wanted.dsink, wanted.dbias};
    if ((wanted.dsink && !wanted.dk && !problem_.sink) || (wanted.dbias && !problem_.bias)) continue;
    CaseTensors part = make_tensors(case_, layout_, seed_);
    const auto call = Call::prepare(case_, layout_.arrays, part, target_, 2);
    if (!call) return fail(call.error().message);
    fail(call->forward(part));
    fail(call->backward(part, wanted));
    const Bits bits = bits_of(part);
    std::string which = "asked for only";
    for (std::size_t n = 2; n < std::size(kOutputs); ++n)
      if (asked[n]) which += std::string(" ") + kOutputs[n].name;
    for (std::size_t n = 2; n < std::size(kOutputs); ++n) {
      const std::vector<u32>& got = bits.*kOutputs[n].bits;
      if (asked[n] && got != all.*kOutputs[n].bits)
        fail(fmt::format("{}: {} differs from that of the whole backward", which, kOutputs[n].name));
      if (!asked[n] && std::count(got.begin(), got.end(), poison(kOutputs[n])) != static_cast<i64>(got.size()))
        fail(fmt::format("{}: {} was written", which, kOutputs[n].name));
    }
  }
}

void Examination::expect_same(const Bits& expected, const Bits& got, const std::string& when) {
  if (failed()) return;
  for (const auto& [name, bits] : kOutputs)
    if (expected.*bits != got.*bits) fail(fmt::format("{} differs {}", name, when));
}

void Examination::determinism() {
  const Bits once = run_changed({});
  if (failed()) return;
  expect_same(once, run_changed({}), "when the call is repeated");
  for (const int num_threads : {2, 3, 7})
    expect_same(once, run_changed({}, num_threads), fmt::format("with {} threads", num_threads));
  if (failed()) return;

  // Every candidate outside the sequence's first group gets other numbers; that group must not notice.
  if (keys_are_shared() || !mask_only()) return;
  const Bits others = run_changed([&](CaseTensors& t) {
    for (i64 b = 0; b < case_.batch; ++b) {
      const MaskSpec& m = sequences_[b].mask;
      for (i32 p = m.candidate_begin + m.candidate_group_size; p < m.candidate_end; ++p) {
        change_kv(t, b, p, [](float x) { return 1 - x; });
        change_q(t, b, p - m.query_offset, [](float x) { return 1 - x; });
      }
    }
  });
  for (i64 b = 0; b < case_.batch && !failed(); ++b) {
    const MaskSpec& m = sequences_[b].mask;
    for (i32 p = m.candidate_begin; p < min_of(m.candidate_end, m.candidate_begin + m.candidate_group_size); ++p) {
      expect_query_rows(once, others, b, p - m.query_offset, "with other candidates around");
      expect_key_rows(once, others, b, p, "with other candidates around");
    }
  }
}

template <class Visit>
void Examination::for_q_row(i64 sequence, i64 row, Visit&& visit) const {
  const Sequence& s = sequences_[sequence];
  for (i64 head = 0; head < problem_.num_heads_q; ++head)
    visit((s.q_batch * problem_.rows_q + s.q_row_begin + row) * problem_.num_heads_q + head,
          (s.q_batch * problem_.num_heads_q + head) * problem_.rows_q + s.q_row_begin + row);
}

template <class Visit>
void Examination::for_kv_row(i64 sequence, i64 row, Visit&& visit) const {
  const Sequence& s = sequences_[sequence];
  for (i64 head = 0; head < problem_.num_heads_kv; ++head)
    visit((s.kv_batch * problem_.rows_kv + s.kv_row_begin + row) * problem_.num_heads_kv + head);
}

bool same_row(const std::vector<u32>& a, const std::vector<u32>& b, i64 row, i64 dim) {
  return std::equal(a.begin() + row * dim, a.begin() + (row + 1) * dim, b.begin() + row * dim);
}

void Examination::expect_query_rows(const Bits& expected, const Bits& got, i64 sequence, i64 row, const std::string& when) {
  if (failed() || row < 0 || row >= sequences_[sequence].seqlen_q) return;
  for_q_row(sequence, row, [&](i64 at, i64 lse_at) {
    const char* wrong = !same_row(expected.out, got.out, at, problem_.head_dim_v)                 ? "out"
                        : expected.lse[lse_at] != got.lse[lse_at]                                 ? "lse"
                        : case_.backward && !same_row(expected.dq, got.dq, at, problem_.head_dim) ? "dq"
                                                                                                  : nullptr;
    if (wrong != nullptr) fail(fmt::format("{} of sequence {}, row {} changes {}", wrong, sequence, row, when));
  });
}

void Examination::expect_key_rows(const Bits& expected, const Bits& got, i64 sequence, i64 key, const std::string& when) {
  if (failed() || !case_.backward) return;
  for_kv_row(sequence, key, [&](i64 at) {
    const char* wrong = !same_row(expected.dk, got.dk, at, problem_.head_dim)     ? "dk"
                        : !same_row(expected.dv, got.dv, at, problem_.head_dim_v) ? "dv"
                                                                                  : nullptr;
    if (wrong != nullptr) fail(fmt::format("{} of sequence {}, key {} changes {}", wrong, sequence, key, when));
  });
}

void Examination::change_q(CaseTensors& t, i64 sequence, i64 row, const std::function<float(float)>& change) const {
  const Sequence& s = sequences_[sequence];
  if (row < 0 || row >= s.slot_q) return;
  change_row(t.at.q, s.q_batch, s.q_row_begin + row, change);
  if (case_.backward && !keys_are_shared()) change_row(t.at.dout, s.q_batch, s.q_row_begin + row, change);
}

void Examination::change_kv(CaseTensors& t, i64 sequence, i64 key, const std::function<float(float)>& change) const {
  const KvPlace at = kv_place(sequences_[sequence], static_cast<i32>(key));
  change_row(at.is_new ? t.k_new : t.at.k, at.batch, at.row, change);
  change_row(at.is_new ? t.v_new : t.at.v, at.batch, at.row, change);
}

// The bias of a sequence, if it is its own.
void Examination::change_bias(CaseTensors& t, i64 sequence, const std::function<float(float)>& change) const {
  if (!(problem_.packed ? case_.bias.rows : case_.bias.batch)) return;
  const Sequence& s = sequences_[sequence];
  const Tensor& bias = t.at.bias;
  for (i64 head = 0; head < (case_.bias.heads ? problem_.num_heads_q : 1); ++head)
    for (i64 i = 0; i < (case_.bias.rows ? s.seqlen_q : 1); ++i)
      for (i64 j = 0; j < s.seqlen_kv; ++j) {
        const i64 at = reference::bias_offset(bias, s.q_batch, head, s.q_row_begin + i, j);
        store(bias, at, change(element(bias, at)));
      }
}

void Examination::change_unused_keys(CaseTensors& t, const std::function<float(float)>& change) const {
  for (const Sequence& s : sequences_) {
    for (i64 row = s.seqlen_cached; row < s.slot_kv; ++row)
      for (Tensor* x : {&t.at.k, &t.at.v}) change_row(*x, s.kv_batch, s.kv_row_begin + row, change);
    for (i64 row = s.seqlen_q; row < s.slot_q && case_.new_keys; ++row)
      for (Tensor* x : {&t.k_new, &t.v_new}) change_row(*x, s.q_batch, s.q_row_begin + row, change);
  }
  if (case_.kv_layout != KvLayout::paged) return;
  std::vector<bool> used(layout_.arrays.num_pages * case_.page_size, false);
  for (const Sequence& s : sequences_)
    for (i32 j = 0; j < s.seqlen_cached; ++j) used[kv_place(s, j).batch * case_.page_size + kv_place(s, j).row] = true;
  for (std::size_t n = 0; n < used.size(); ++n)
    for (Tensor* x : {&t.at.k, &t.at.v})
      if (!used[n]) change_row(*x, static_cast<i64>(n) / case_.page_size, static_cast<i64>(n) % case_.page_size, change);
}

// Rows and pages not in use, and positions that are padding: nothing at all may change.
void Examination::poison_padding(const Bits& clean, float poison) {
  const auto constant = [poison](float) { return poison; };
  const Bits got = run_changed([&](CaseTensors& t) {
    for (i64 b = 0; b < case_.batch; ++b) {
      const Sequence& s = sequences_[b];
      const auto padding = [&](i32 p) { return mask_only() && role_at(s.mask, p) == Role::padding; };
      for (i32 i = 0; i < s.slot_q; ++i)
        if (i >= s.seqlen_q || padding(i + s.mask.query_offset)) change_q(t, b, i, constant);
      for (i32 j = 0; j < s.seqlen_kv; ++j)
        if (padding(j)) change_kv(t, b, j, constant);
    }
    change_unused_keys(t, constant);
  });
  expect_same(clean, got, fmt::format("when padding is {}", poison));
}

void Examination::poison_other_sequences(const Bits& clean, float poison) {
  if (case_.batch < 2) return;
  const auto constant = [poison](float) { return poison; };
  for (i64 kept = 0; kept < case_.batch && !failed(); kept += max_of<i64>(1, case_.batch / 2)) {
    const Bits got = run_changed([&](CaseTensors& t) {
      for (i64 b = 0; b < case_.batch; ++b) {
        if (b == kept) continue;
        for (i32 i = 0; i < sequences_[b].slot_q; ++i) change_q(t, b, i, constant);
        for (i32 j = 0; j < sequences_[b].seqlen_kv; ++j) change_kv(t, b, j, constant);
        change_bias(t, b, constant);
      }
    });
    const std::string when = fmt::format("when the other sequences are {}", poison);
    for (i32 i = 0; i < sequences_[kept].seqlen_q; ++i) expect_query_rows(clean, got, kept, i, when);
    for (i32 j = 0; j < sequences_[kept].slot_kv; ++j) expect_key_rows(clean, got, kept, j, when);
  }
}

// One group of each sequence is poisoned: no other row may change, nor the gradients of other candidates' keys.
void Examination::poison_candidates(const Bits& clean, float poison) {
  const auto constant = [poison](float) { return poison; };
  for (const double part : {0.0, 0.5, 1.0}) {
    const auto poisoned = [&](const MaskSpec& m) {
      if (m.candidate_begin >= m.candidate_end) return Interval{};
      const i32 p = m.candidate_begin + static_cast<i32>(part * (m.candidate_end - m.candidate_begin - 1));
      return Interval{group_begin(m, p), group_end(m, p)};
    };
    const Bits got = run_changed([&](CaseTensors& t) {
      for (i64 b = 0; b < case_.batch; ++b) {
        const MaskSpec& m = sequences_[b].mask;
        for (i32 p = poisoned(m).begin; p < poisoned(m).end; ++p) {
          change_q(t, b, p - m.query_offset, constant);
          change_kv(t, b, p, constant);
        }
      }
    });
    const std::string when = fmt::format("when one group of candidates is {}", poison);
    for (i64 b = 0; b < case_.batch && !failed(); ++b) {
      const MaskSpec& m = sequences_[b].mask;
      for (i32 i = 0; i < sequences_[b].seqlen_q; ++i)
        if (!poisoned(m).contains(i + m.query_offset)) expect_query_rows(clean, got, b, i, when);
      for (i32 j = m.candidate_begin; j < m.candidate_end; ++j)
        if (!poisoned(m).contains(j)) expect_key_rows(clean, got, b, j, when);
    }
  }
}

// Finite data: for a few rows, every key that the row may not see gets other numbers.
void Examination::change_hidden_keys(const Bits& clean) {
  for (const double part : {0.0, 0.4, 1.0}) {
    const auto row_of = [&](const Sequence& s) { return static_cast<i32>(part * max_of(0, s.seqlen_q - 1)); };
    const Bits got = run_changed([&](CaseTensors& t) {
      for (i64 b = 0; b < case_.batch; ++b) {
        const Sequence& s = sequences_[b];
        for (i32 j = 0; j < s.seqlen_kv; ++j)
          if (s.seqlen_q > 0 && !seen_by_some_head(s, row_of(s), j)) change_kv(t, b, j, [](float x) { return 3 - 2 * x; });
      }
    });
    for (i64 b = 0; b < case_.batch; ++b)
      expect_query_rows(clean, got, b, row_of(sequences_[b]), "when keys it may not see change");
  }
}

// Finite data: for a few keys, every query that may not see the key gets other numbers.
void Examination::change_blind_queries(const Bits& clean) {
  for (const double part : {0.0, 0.6, 1.0}) {
    const auto key_of = [&](const Sequence& s) { return static_cast<i32>(part * max_of(0, s.seqlen_kv - 1)); };
    const Bits got = run_changed([&](CaseTensors& t) {
      for (i64 b = 0; b < case_.batch; ++b) {
        const Sequence& s = sequences_[b];
        for (i32 i = 0; i < s.seqlen_q; ++i)
          if (!seen_by_some_head(s, i, key_of(s))) change_q(t, b, i, [](float x) { return 3 - 2 * x; });
      }
    });
    for (i64 b = 0; b < case_.batch && !failed(); ++b)
      if (sequences_[b].seqlen_kv > 0)
        expect_key_rows(clean, got, b, key_of(sequences_[b]), "when queries that may not see it change");
  }
}

void Examination::isolation() {
  if (keys_are_shared()) return;  // its rows share memory: one cannot change alone
  const Bits clean = run_changed({}, 2);
  if (failed()) return;
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    poison_padding(clean, poison);
    poison_other_sequences(clean, poison);
    if (mask_only()) poison_candidates(clean, poison);
  }
  change_hidden_keys(clean);
  if (case_.backward) change_blind_queries(clean);
}

}  // namespace

Outcome run_case(const Case& c, Mode mode, const Target& target, u64 seed) {
  Examination examination(c, target, seed);
  switch (mode) {
    case Mode::fwd: examination.forward_values(); break;
    case Mode::grad: examination.gradient_values(); break;
    case Mode::bounds: examination.bounds(); break;
    case Mode::determinism: examination.determinism(); break;
    case Mode::isolation: examination.isolation(); break;
  }
  return examination.outcome;
}

std::string rerun_line(const Case& c, Mode mode, const Target& target, u64 seed) {
  const std::string level = target.level.empty() ? "" : " --level " + target.level;
  return fmt::format("isoflash check --case \"{}\" --backend {}{} --mode {} --seed {}", print_case(c), target.backend,
                     level, mode_name(mode), seed);
}

}  // namespace iso::conformance
