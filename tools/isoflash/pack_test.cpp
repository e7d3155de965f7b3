#include "pack.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "hash.h"

namespace iso::tool {
namespace {

void no_progress(i64, i64) {}

PackOptions small_options() {
  PackOptions options;
  options.num_heads_q = 2;
  options.num_heads_kv = 1;
  options.head_dim = 16;
  options.head_dim_v = 8;
  return options;
}

// Every byte of the batch, names and metadata included, in one number.
u64 fingerprint(const Batch& batch) {
  u64 h = 0;
  for (const auto& [key, value] : batch.metadata) h = hash_of(hash_of(h, key), value);
  for (const auto& [name, t] : batch.tensors) {
    h = hash_of(hash_of(h, name), std::string_view(static_cast<const char*>(t.data()), t.bytes()));
    for (const i64 size : t.shape()) h = hash_of(h, static_cast<u64>(size));
  }
  return h;
}

TEST(Pack, CountsFollowTheRule) {
  const InteractionLog log = generate_interactions(60, 3);
  const std::vector<Session> sessions = make_sessions(log, {});
  ASSERT_EQ(sessions.size(), 60u);
  for (const Session& s : sessions) {
    const i64 items =
        std::count_if(log.events.begin(), log.events.end(), [&](const Interaction& e) { return e.user == s.user; });
    const i64 positives =
        std::count_if(s.candidates.begin(), s.candidates.end(), [](const Candidate& c) { return c.positive; });
    EXPECT_EQ(positives, items >= 256 ? 64 : items / 4);
    EXPECT_EQ(static_cast<i64>(s.candidates.size()), 2 * positives);
    EXPECT_LE(s.candidates.size(), 128u);
    EXPECT_EQ(static_cast<i64>(s.history.size()), std::min<i64>(items - positives, 1022));
  }
}

RC_GTEST_PROP(Pack, SessionsKeepTheirPromises, ()) {
  InteractionLog log;
  const u32 users = *rc::gen::inRange<u32>(1, 5), items = *rc::gen::inRange<u32>(1, 40);
  for (u32 n = 0; n < users; ++n) log.users.push_back("u" + std::to_string(n));
  for (u32 n = 0; n < items; ++n) log.items.push_back("i" + std::to_string(n));
  const int events = *rc::gen::inRange(1, 200);
  for (int n = 0; n < events; ++n)
    log.events.push_back(
        {*rc::gen::inRange<u32>(0, users), *rc::gen::inRange<u32>(0, items), 3.0f, *rc::gen::inRange(0, 50) * 1.0});
  PackOptions options;
  options.max_history = *rc::gen::inRange<i64>(0, 30);
  options.positives = *rc::gen::inRange<i64>(0, 8);

  for (const Session& s : make_sessions(log, options)) {
    std::set<u32> met, in_history, candidates;
    for (const Interaction& e : log.events)
      if (e.user == s.user) met.insert(e.item);
    double time = -1, latest = -1;
    for (const Interaction& e : s.history) {
      RC_ASSERT(e.user == s.user);
      RC_ASSERT(e.time >= time);
      time = latest = e.time;
      RC_ASSERT(in_history.insert(e.item).second);
    }
    RC_ASSERT(static_cast<i64>(s.history.size()) <= options.max_history);
    std::size_t positives = 0;
    for (const Candidate& c : s.candidates) {
      RC_ASSERT(candidates.insert(c.item).second);
      RC_ASSERT(in_history.count(c.item) == 0u);
      RC_ASSERT((met.count(c.item) == 1u) == c.positive);
      positives += c.positive;
      for (const Interaction& e : log.events)
        if (c.positive && e.user == s.user && e.item == c.item) latest = std::max(latest, e.time);
    }
    RC_ASSERT(latest >= time);
    RC_ASSERT(positives == std::min(met.size() / 4, static_cast<std::size_t>(options.positives)));
    RC_ASSERT(s.candidates.size() - positives == std::min(positives, items - met.size()));
  }
}

TEST(Pack, TensorsDescribeTheSessions) {
  const InteractionLog log = generate_interactions(12, 5);
  const PackOptions options = small_options();
  const std::vector<Session> sessions = make_sessions(log, options);
  const Batch batch = pack_batch(log, sessions, options, "test", no_progress);
  const auto cu_seqlens = batch.find("cu_seqlens")->as<i32>();
  const auto labels = batch.find("labels")->as<i32>();
  const auto item_ids = batch.find("item_ids")->as<i64>();
  ASSERT_EQ(cu_seqlens.size(), 13u);
  for (std::size_t b = 0; b < sessions.size(); ++b) {
    const Session& s = sessions[b];
    EXPECT_EQ(cu_seqlens[b + 1] - cu_seqlens[b], s.rows());
    EXPECT_EQ(batch.find("num_context")->as<i32>()[b], 2);
    EXPECT_EQ(batch.find("history_len")->as<i32>()[b], static_cast<i32>(s.history.size()));
    EXPECT_EQ(batch.find("num_candidates")->as<i32>()[b], static_cast<i32>(s.candidates.size()));
    std::size_t row = static_cast<std::size_t>(cu_seqlens[b]);
    for (int n = 0; n < 2; ++n, ++row) EXPECT_TRUE(item_ids[row] == -1 && labels[row] == -1);
    for (const Interaction& e : s.history) {
      EXPECT_EQ(item_ids[row], std::stoll(log.items[e.item]));
      EXPECT_EQ(labels[row++], -1);
    }
    for (const Candidate& c : s.candidates) {
      EXPECT_EQ(item_ids[row], std::stoll(log.items[c.item]));
      EXPECT_EQ(labels[row++], c.positive ? 1 : 0);
    }
  }
  const i64 total = cu_seqlens.back();
  EXPECT_EQ(batch.find("q")->shape(), (std::vector<i64>{total, 2, 16}));
  EXPECT_EQ(batch.find("k")->shape(), (std::vector<i64>{total, 1, 16}));
  EXPECT_EQ(batch.find("v")->shape(), (std::vector<i64>{total, 1, 8}));
  EXPECT_EQ(batch.find("dout")->shape(), (std::vector<i64>{total, 2, 8}));
}

TEST(Pack, LogitsHaveTheSpreadOfATrainedRanker) {
  const InteractionLog log = generate_interactions(4, 11);
  PackOptions options;
  options.dtype = DType::f32;
  const Batch batch = pack_batch(log, make_sessions(log, options), options, "test", no_progress);
  const auto q = batch.find("q")->as<float>(), k = batch.find("k")->as<float>();
  const i32 rows = batch.find("cu_seqlens")->as<i32>()[1];
  double sum = 0, squares = 0;
  for (i32 i = 0; i < rows; ++i)
    for (i32 j = 0; j < rows; ++j) {
      double s = 0;
      for (int d = 0; d < 128; ++d) s += q[i * 4 * 128 + d] * k[j * 2 * 128 + d];
      s /= std::sqrt(128.0);
      sum += s;
      squares += s * s;
    }
  const double count = static_cast<double>(rows) * rows, mean = sum / count;
  const double deviation = std::sqrt(squares / count - mean * mean);
  EXPECT_GT(deviation, 1.5);
  EXPECT_LT(deviation, 2.7);
}

// Bytes of a tiny batch. A change here means that batches packed before and after differ: intended only with a new
// format_version.
TEST(Pack, IsTheSameEverywhere) {
  const InteractionLog log = generate_interactions(3, 1);
  const PackOptions options = small_options();
  const u64 got = fingerprint(pack_batch(log, make_sessions(log, options), options, "test", no_progress));
  EXPECT_EQ(got, 15303285339556645780u) << "if packing changed on purpose, raise format_version and put this number here";
}

TEST(Pack, DependsOnTheSeedAndNothingElse) {
  const InteractionLog log = generate_interactions(3, 1);
  PackOptions options = small_options();
  const auto packed = [&] {
    return fingerprint(pack_batch(log, make_sessions(log, options), options, "test", no_progress));
  };
  const u64 first = packed();
  EXPECT_EQ(packed(), first);
  options.seed = 2;
  EXPECT_NE(packed(), first);
}

}  // namespace
}  // namespace iso::tool
