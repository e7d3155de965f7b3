// Known faults: candidate, item and document isolation.
#include "known_faults/reference.h"

namespace iso::known_faults {
namespace {

TEST(KnownFaults, R88_bidirectional_history_with_targets) {
  Attention a(ISOFLASH_BF16,
              {.batch = 2, .seqlen_q = 120, .seqlen_kv = 120, .num_heads_q = 2, .num_heads_kv = 2, .head_dim = 16});
  a.session(0, 100, 20);
  a.fill_noise();
  a.run();
  expect_right(a);
}

// History of 6, three candidates of 2 tokens.
void make_items(Attention& a) {
  a.session(0, 6, 6, 2);
  a.fill_noise();
  a.v.fill([&](Index i) { return i[a.is_packed ? 0 : 1] % 12 == i[a.is_packed ? 2 : 3] ? 1.0 : 0.0; });  // one-hot
}

void expect_isolation(const std::function<std::unique_ptr<Attention>()>& make) {
  const auto a = make();
  make_items(*a);
  a->run();
  expect_right(*a);
  for (int64_t i = 6; i < 12; ++i)
    for (int64_t j = 0; j < 12; ++j)
      EXPECT_EQ(a->out_of(0, i, 0, j) > 0, j < 6 || (j - 6) / 2 == (i - 6) / 2) << "weight of key " << j << " in row " << i;
  // Other candidates' keys and values change: nothing of candidate 1 (rows 8 and 9) may.
  const auto b = make();
  make_items(*b);
  for (int64_t j : {6, 7, 10, 11})
    for (int64_t d = 0; d < 16; ++d) b->k.set(b->kv_row(0, j, 0, d), 50.0), b->v.set(b->kv_row(0, j, 0, d), -1e4);
  b->run();
  for (int64_t i : {0, 5, 8, 9})
    for (int64_t d = 0; d < 16; ++d) {
      EXPECT_EQ(a->out_of(0, i, 0, d), b->out_of(0, i, 0, d)) << "out of row " << i << " depends on another candidate";
      EXPECT_EQ(a->dq.get(a->q_row(0, i, 0, d)), b->dq.get(b->q_row(0, i, 0, d))) << "dq of row " << i;
    }
  // The loss is on candidate 1 alone: the others' keys get exactly no gradient.
  const auto c = make();
  make_items(*c);
  for (int64_t i = 0; i < 12; ++i)
    for (int64_t d = 0; d < 16 && i / 2 != 4; ++d) c->dout.set(c->q_row(0, i, 0, d), 0.0);
  c->run();
  expect_right(*c);
  for (int64_t j : {6, 7, 10, 11})
    for (int64_t d = 0; d < 16; ++d) {
      EXPECT_EQ(c->dk.get(c->kv_row(0, j, 0, d)), 0.0) << "dk of another candidate, row " << j;
      EXPECT_EQ(c->dv.get(c->kv_row(0, j, 0, d)), 0.0) << "dv of another candidate, row " << j;
    }
}

TEST(KnownFaults, R89_isolation_dropped_for_plain_causal) {
  for (isoflash_dtype dtype : {ISOFLASH_F32, ISOFLASH_BF16}) {
    expect_isolation(
        [=] { return std::make_unique<Attention>(dtype, Sizes{.seqlen_q = 12, .seqlen_kv = 12, .head_dim = 16}); });
    expect_isolation([=] {
      return std::make_unique<Attention>(dtype, std::vector<int32_t>{12, 12}, std::vector<int32_t>{12, 12},
                                         Sizes{.head_dim = 16});
    });
  }
}

TEST(KnownFaults, R89_isolation_with_a_causal_history) {
  Attention a(ISOFLASH_F32, {.seqlen_q = 140, .seqlen_kv = 140, .head_dim = 16});
  a.session(3, 97, 40, 3);  // the last group has one token
  a.mask().history_kind = ISOFLASH_HISTORY_CAUSAL;
  a.visible = [](int64_t, int64_t i, int64_t j) {
    if (i < 3 || i >= 100) return j < 100 || (i >= 100 && (i - 100) / 3 == (j - 100) / 3);
    return j <= i;
  };
  a.fill_noise();
  a.run();
  expect_right(a);
}

TEST(KnownFaults, R91_tile_skipping_under_the_item_mask) {
  struct Shape {
    int64_t history, candidates, group;
  };
  for (const Shape& s : {Shape{129, 65, 1}, Shape{1, 300, 1}, Shape{1, 300, 300}, Shape{0, 300, 7}}) {
    SCOPED_TRACE(std::to_string(s.history) + " + " + std::to_string(s.candidates) + " in groups of " +
                 std::to_string(s.group));
    const int64_t rows = s.history + s.candidates;
    Attention a(ISOFLASH_BF16, {.seqlen_q = rows, .seqlen_kv = rows, .num_heads_q = 14, .num_heads_kv = 2, .head_dim = 16});
    a.session(0, s.history, s.candidates, s.group);
    a.fill_noise();
    a.run();
    expect_right(a);
  }
}

TEST(KnownFaults, R94_backward_lacks_the_context) {
  for (const auto kind : {ISOFLASH_HISTORY_BIDIRECTIONAL, ISOFLASH_HISTORY_CAUSAL}) {
    Attention a(ISOFLASH_F32, {.seqlen_q = 10, .seqlen_kv = 10, .head_dim = 8});
    a.session(2, 6, 2);
    a.mask().history_kind = kind;
    a.visible = [kind](int64_t, int64_t i, int64_t j) {
      if (i >= 8) return j < 8 || j == i;
      return j < 8 && (i < 2 || kind == ISOFLASH_HISTORY_BIDIRECTIONAL || j <= i);
    };
    a.fill_noise();
    a.run();
    expect_right(a);
  }
}

// Every sequence its own sizes, padded on the left, candidates at a fixed slot; and candidates alone against the history.
TEST(KnownFaults, R89_isolation_with_sizes_per_sequence) {
  const std::vector<int32_t> begin{3, 0, 20}, candidates{5, 0, 12};
  Attention a(ISOFLASH_BF16,
              {.batch = 3, .seqlen_q = 50, .seqlen_kv = 50, .num_heads_q = 5, .num_heads_kv = 1, .head_dim = 16});
  a.mask().num_context.value = 2;
  a.mask().history_len.value = 30;
  a.mask().history_begin.values = a.int_array({5, 2, 22});
  a.mask().num_candidates.values = a.int_array(candidates);
  a.mask().candidate_begin.value = 36;
  a.mask().candidate_group_size = 2;
  a.visible = [=](int64_t b, int64_t i, int64_t j) {
    const auto shared = [&](int64_t p) { return p < 2 || (p >= 2 + begin[b] && p < 32); };
    const auto candidate = [&](int64_t p) { return p >= 36 && p < 36 + candidates[b]; };
    if (!shared(i) && !candidate(i)) return false;
    return shared(j) || (candidate(i) && candidate(j) && (i - 36) / 2 == (j - 36) / 2);
  };
  a.fill_noise();
  a.run();
  expect_right(a);
  Attention alone(ISOFLASH_BF16,
                  {.batch = 3, .seqlen_q = 12, .seqlen_kv = 50, .num_heads_q = 5, .num_heads_kv = 1, .head_dim = 16});
  alone.problem.mask = a.problem.mask;
  alone.mask().query_offset.value = 36;
  alone.visible = [&a](int64_t b, int64_t i, int64_t j) { return a.visible(b, i + 36, j); };
  alone.fill_noise();
  alone.k = a.k, alone.v = a.v;
  alone.q.fill([&](Index i) { return a.q.get({i[0], i[1] + 36, i[2], i[3]}); });
  alone.run();
  expect_right(alone);
  alone.out.for_each([&](Index i) {
    ASSERT_EQ(alone.out.get(i), a.out.get({i[0], i[1] + 36, i[2], i[3]}))
        << "candidates scored alone differ from candidates scored with their history, row " << i[1];
  });
}

}  // namespace
}  // namespace iso::known_faults
