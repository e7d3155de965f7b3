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
  std::vector<u32> out, lse, dq, dk, dv;
  bool operator==(const Bits&) const = default;
};

// A case under test: plans and runs it, and collects failures.
class Examination {
 public:
  Examination(const Case& c, const Target& target, u64 seed)
      : case_(c), target_(target), seed_(seed), problem_(problem_of(c)), sequences_(sequences_of(c)) {
    for (const Sequence& s : sequences_)
      for (i32 i = 0; i < s.seqlen_q; ++i)
        for (i32 j = 0; j < s.seqlen_kv; ++j) visible_pairs_ += visible(s.mask, i + s.mask.query_offset, j) ? 1 : 0;
  }

  void forward_values();
  void gradient_values();
  void bounds();
  void determinism();
  void isolation();

  Outcome outcome;

 private:
  // Changes some inputs before a run.
  using Change = std::function<void(CaseTensors&)>;

  void fail(std::string what) {
    if (!what.empty()) outcome.failures.push_back(std::move(what));
  }
  bool failed() const { return !outcome.failures.empty() || !outcome.unsupported.empty(); }

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

  void poison_padding(const Bits& clean, float poison);
  void poison_other_sequences(const Bits& clean, float poison);
  void poison_candidates(const Bits& clean, float poison);
  void change_hidden_keys(const Bits& clean);
  void change_blind_queries(const Bits& clean);

  void change_q(CaseTensors& t, i64 sequence, i64 row, const std::function<float(float)>& change) const;
  void change_kv(CaseTensors& t, i64 sequence, i64 key, const std::function<float(float)>& change) const;
  bool keys_are_shared() const { return case_.strides == Strides::expanded; }

  const Case& case_;
  const Target& target_;
  u64 seed_;
  Problem problem_;
  std::vector<Sequence> sequences_;
  i64 visible_pairs_ = 0;
};

bool Examination::run(CaseTensors& tensors, int num_threads) {
  const auto call = Call::prepare(case_, tensors, target_, num_threads);
  if (!call) {
    if (call.error().unsupported) outcome.unsupported = call.error().message;
    else fail(call.error().message);
    return false;
  }
  if (call->visible_pairs() != visible_pairs_)
    fail(fmt::format("the plan counts {} visible pairs instead of {}", call->visible_pairs(), visible_pairs_));
  fail(call->forward(tensors));
  if (case_.backward && !failed()) fail(call->backward(tensors));
  return !failed();
}

void Examination::forward_values() {
  CaseTensors tensors = make_tensors(case_, seed_);
  if (!run(tensors, 1)) return;
  const auto truth = Reference<Float64>(problem_, sequences_, tensors.at).forward();
  const auto yardstick = Reference<MixedPrecision>(problem_, sequences_, tensors.at).forward();
  fail(compare("out", case_.dtype, truth.out, yardstick.out, values(tensors.at.out)));
  fail(compare("lse", DType::f32, truth.lse, yardstick.lse, values(tensors.at.lse)));
}

void Examination::gradient_values() {
  if (!case_.backward) return;
  CaseTensors tensors = make_tensors(case_, seed_);
  if (!run(tensors, 1)) return;
  const auto truth = Reference<Float64>(problem_, sequences_, tensors.at).backward();
  const auto yardstick = Reference<MixedPrecision>(problem_, sequences_, tensors.at).backward();
  const auto noise =
      Reference<Float64>(problem_, sequences_, tensors.at).unavoidable_error(rounding_floor(case_.dtype));
  fail(compare("dq", case_.dtype, truth.dq, yardstick.dq, values(tensors.at.dq), noise.dq));
  fail(compare("dk", case_.dtype, truth.dk, yardstick.dk, values(tensors.at.dk), noise.dk));
  fail(compare("dv", case_.dtype, truth.dv, yardstick.dv, values(tensors.at.dv), noise.dv));
}

Bits bits_of(const CaseTensors& tensors) {
  const BackwardTensors& t = tensors.at;
  Bits bits{element_bits(t.out), element_bits(t.lse), {}, {}, {}};
  if (given(t.dq)) bits.dq = element_bits(t.dq), bits.dk = element_bits(t.dk), bits.dv = element_bits(t.dv);
  return bits;
}

Bits Examination::run_changed(const Change& change, int num_threads) {
  CaseTensors tensors = make_tensors(case_, seed_);
  if (change) change(tensors);
  return run(tensors, num_threads) ? bits_of(tensors) : Bits{};
}

void Examination::bounds() {
  // Call checks every write outside the outputs' elements; here, that each element was written (outputs start as NaN).
  const auto unwritten = [](const std::vector<u32>& bits, DType dtype) {
    const u32 poison = dtype_size(dtype) == 2 ? 0xffffu : 0xffffffffu;
    return std::count(bits.begin(), bits.end(), poison) != 0;
  };
  CaseTensors tensors = make_tensors(case_, seed_);
  if (!run(tensors, 2)) return;
  const Bits all = bits_of(tensors);
  if (unwritten(all.out, case_.dtype)) fail("an element of out was not written");
  if (unwritten(all.lse, DType::f32)) fail("an element of lse was not written");
  for (const auto* bits : {&all.dq, &all.dk, &all.dv})
    if (unwritten(*bits, case_.dtype)) fail("an element of a gradient was not written");
  if (!case_.backward) return;

  for (const Wanted wanted : {Wanted{true, false, false}, Wanted{false, true, false}, Wanted{false, false, true},
                              Wanted{false, true, true}}) {
    CaseTensors part = make_tensors(case_, seed_);
    const auto call = Call::prepare(case_, part, target_, 2);
    if (!call) return fail(call.error().message);
    fail(call->forward(part));
    fail(call->backward(part, wanted));
    const Bits bits = bits_of(part);
    const std::string which =
        fmt::format("asked for{}{}{} only: ", wanted.dq ? " dq" : "", wanted.dk ? " dk" : "", wanted.dv ? " dv" : "");
    const auto check = [&](const char* name, bool asked, const std::vector<u32>& got, const std::vector<u32>& expected) {
      if (asked && got != expected) fail(which + name + " differs from that of the whole backward");
      const u32 poison = dtype_size(case_.dtype) == 2 ? 0xffffu : 0xffffffffu;
      if (!asked && std::count(got.begin(), got.end(), poison) != static_cast<i64>(got.size()))
        fail(which + name + " was written");
    };
    check("dq", wanted.dq, bits.dq, all.dq);
    check("dk", wanted.dk, bits.dk, all.dk);
    check("dv", wanted.dv, bits.dv, all.dv);
  }
}

void Examination::expect_same(const Bits& expected, const Bits& got, const std::string& when) {
  if (failed()) return;
  const struct { const char* name; const std::vector<u32> Bits::*bits; } outputs[] = {
      {"out", &Bits::out}, {"lse", &Bits::lse}, {"dq", &Bits::dq}, {"dk", &Bits::dk}, {"dv", &Bits::dv}};
  for (const auto& [name, bits] : outputs)
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
  if (keys_are_shared()) return;
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

void Examination::expect_query_rows(const Bits& expected, const Bits& got, i64 sequence, i64 row,
                                    const std::string& when) {
  if (failed() || row < 0 || row >= sequences_[sequence].seqlen_q) return;
  for_q_row(sequence, row, [&](i64 at, i64 lse_at) {
    const char* wrong = !same_row(expected.out, got.out, at, problem_.head_dim_v) ? "out"
                        : expected.lse[lse_at] != got.lse[lse_at]                 ? "lse"
                        : case_.backward && !same_row(expected.dq, got.dq, at, problem_.head_dim) ? "dq"
                                                                                                  : nullptr;
    if (wrong != nullptr) fail(fmt::format("{} of sequence {}, row {} changes {}", wrong, sequence, row, when));
  });
}

void Examination::expect_key_rows(const Bits& expected, const Bits& got, i64 sequence, i64 key,
                                  const std::string& when) {
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
  const Sequence& s = sequences_[sequence];
  change_row(t.at.k, s.kv_batch, s.kv_row_begin + key, change);
  change_row(t.at.v, s.kv_batch, s.kv_row_begin + key, change);
}

// Rows not in use, and positions that are padding: nothing at all may change.
void Examination::poison_padding(const Bits& clean, float poison) {
  const auto constant = [poison](float) { return poison; };
  const Bits got = run_changed([&](CaseTensors& t) {
    for (i64 b = 0; b < case_.batch; ++b) {
      const Sequence& s = sequences_[b];
      for (i32 i = 0; i < s.slot_q; ++i)
        if (i >= s.seqlen_q || role_at(s.mask, i + s.mask.query_offset) == Role::padding) change_q(t, b, i, constant);
      for (i32 j = 0; j < s.slot_kv; ++j)
        if (j >= s.seqlen_kv || role_at(s.mask, j) == Role::padding) change_kv(t, b, j, constant);
    }
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
        for (i32 j = 0; j < sequences_[b].slot_kv; ++j) change_kv(t, b, j, constant);
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
          if (!visible(s.mask, row_of(s) + s.mask.query_offset, j)) change_kv(t, b, j, [](float x) { return 3 - 2 * x; });
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
          if (!visible(s.mask, i + s.mask.query_offset, key_of(s))) change_q(t, b, i, [](float x) { return 3 - 2 * x; });
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
    poison_candidates(clean, poison);
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
