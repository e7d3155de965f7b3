#include "pack.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "hash.h"

namespace iso::tool {
namespace {

constexpr int kEmbedding = 32;
using Embedding = std::array<i16, kEmbedding>;

// What a hashed vector stands for; keeps equal numbers of different things apart.
enum class Meaning : u64 {
  user,
  user_taste,
  activity,
  mean_rating,
  item,
  rating,
  recency,
  candidate,
  projection,
  negatives,
  shuffle
};

u64 key_of(u64 seed, Meaning meaning, u64 value) { return hash_of(hash_of(seed, static_cast<u64>(meaning)), value); }

Embedding hashed(u64 key) {
  Embedding x;
  for (int n = 0; n < kEmbedding; ++n) x[n] = hash_normal(hash_of(key, static_cast<u64>(n)));
  return x;
}

Embedding combine(const Embedding& main, const Embedding& detail, const Embedding& place) {
  Embedding x;
  for (int n = 0; n < kEmbedding; ++n) x[n] = static_cast<i16>(2 * main[n] + detail[n] + place[n]);
  return x;
}

// Position of the highest bit: 0, 1, 2, 2, 3, 3, 3, 3, ... for 0, 1, 2, ...
u64 magnitude(u64 x) {
  u64 bits = 0;
  for (; x != 0; x >>= 1) ++bits;
  return bits;
}

// The matrices of one tensor, and the factor that gives its elements their standard deviation.
class Projection {
 public:
  Projection(u64 seed, u64 tensor, i64 outputs, float deviation) : rows_(static_cast<std::size_t>(outputs)) {
    for (std::size_t n = 0; n < rows_.size(); ++n) rows_[n] = hashed(key_of(seed, Meaning::projection, tensor << 32 | n));
    // Variance of one product sum: 32 terms of a weight times 2 * main + detail + place.
    factor_ = deviation / (kHashNormalDeviation * kHashNormalDeviation * 13.8564065f);  // sqrt(32 * 6)
  }

  template <class T>
  void apply(const Embedding& x, T* out) const {
    for (std::size_t n = 0; n < rows_.size(); ++n) {
      i32 sum = 0;
      for (int e = 0; e < kEmbedding; ++e) sum += static_cast<i32>(rows_[n][e]) * x[e];
      out[n] = from_float<T>(static_cast<float>(sum) * factor_);
    }
  }

 private:
  std::vector<Embedding> rows_;
  float factor_;
};

// Embeddings of a user's rows, from the names, so that a user looks the same whatever else is in the log.
class SessionEmbedder {
 public:
  SessionEmbedder(const InteractionLog& log, u64 seed) : log_(log), seed_(seed) {}

  std::vector<Embedding> rows(const Session& s) const {
    const std::string& user = log_.users[s.user];
    std::vector<Embedding> out;
    double ratings = 0;
    for (const Interaction& event : s.history) ratings += event.rating;
    const double mean = s.history.empty() ? 0 : ratings / static_cast<double>(s.history.size());
    out.push_back(combine(name(Meaning::user, user), number(Meaning::activity, magnitude(s.history.size())), {}));
    out.push_back(combine(name(Meaning::user_taste, user), number(Meaning::mean_rating, std::llround(mean * 2)), {}));
    for (std::size_t n = 0; n < s.history.size(); ++n)
      out.push_back(combine(name(Meaning::item, log_.items[s.history[n].item]),
                            number(Meaning::rating, std::llround(s.history[n].rating * 2.0)),
                            number(Meaning::recency, magnitude(s.history.size() - 1 - n))));
    for (const Candidate& candidate : s.candidates)
      out.push_back(combine(name(Meaning::item, log_.items[candidate.item]), number(Meaning::candidate, 0),
                            name(Meaning::user, user)));
    return out;
  }

 private:
  Embedding name(Meaning meaning, const std::string& text) const {
    return hashed(hash_of(key_of(seed_, meaning, 0), text));
  }
  Embedding number(Meaning meaning, long long value) const {
    return hashed(key_of(seed_, meaning, static_cast<u64>(value)));
  }

  const InteractionLog& log_;
  u64 seed_;
};

// A user's interactions in time order (ties as in the log), each item once, at its last time.
std::vector<Interaction> in_time_order(std::vector<Interaction> events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const Interaction& a, const Interaction& b) { return a.time < b.time; });
  std::unordered_set<u32> later;
  std::vector<Interaction> kept;
  for (auto event = events.rbegin(); event != events.rend(); ++event)
    if (later.insert(event->item).second) kept.push_back(*event);
  std::reverse(kept.begin(), kept.end());
  return kept;
}

// `count` different items out of those not in `met`, or all of them if there are fewer.
std::vector<u32> draw_negatives(u32 items, const std::vector<Interaction>& met, std::size_t count, HashStream random) {
  std::vector<bool> excluded(items, false);
  for (const Interaction& event : met) excluded[event.item] = true;
  std::vector<u32> pool;
  for (u32 item = 0; item < items; ++item)
    if (!excluded[item]) pool.push_back(item);
  count = std::min(count, pool.size());
  for (std::size_t n = 0; n < count; ++n) std::swap(pool[n], pool[n + random.below(pool.size() - n)]);
  pool.resize(count);
  return pool;
}

// The names as numbers if every one is a whole number, else 1, 2, ... in the order of the log.
std::vector<i64> ids_of(const std::vector<std::string>& names) {
  std::vector<i64> ids(names.size());
  for (std::size_t n = 0; n < names.size(); ++n) {
    const char* const end = names[n].data() + names[n].size();
    const auto [stop, code] = std::from_chars(names[n].data(), end, ids[n]);
    if (code == std::errc() && stop == end) continue;
    for (std::size_t m = 0; m < ids.size(); ++m) ids[m] = static_cast<i64>(m) + 1;
    break;
  }
  return ids;
}

// Writes the rows of q, k, v and dout.
template <class T>
void project(const InteractionLog& log, const std::vector<Session>& sessions, const PackOptions& options, i64 total,
             Batch& batch, const std::function<void(i64, i64)>& progress) {
  struct Output {
    Projection projection;
    T* rows;
    i64 width;
  };
  std::vector<Output> outputs;
  const auto add = [&](const char* name, i64 heads, i64 dim, float deviation) {
    outputs.push_back({Projection(options.seed, outputs.size(), heads * dim, deviation),
                       static_cast<T*>(batch.tensors.at(name).data()), heads * dim});
  };
  add(batch_name::kQ, options.num_heads_q, options.head_dim, 2.0f);
  add(batch_name::kK, options.num_heads_kv, options.head_dim, 1.0f);
  add(batch_name::kV, options.num_heads_kv, options.head_dim_v, 1.0f);
  add(batch_name::kDout, options.num_heads_q, options.head_dim_v, 1.0f);

  const SessionEmbedder embedder(log, options.seed);
  i64 row = 0;
  for (const Session& s : sessions) {
    for (const Embedding& x : embedder.rows(s)) {
      for (const Output& output : outputs) output.projection.apply(x, output.rows + row * output.width);
      ++row;
    }
    progress(row, total);
  }
}

const char* history_kind_name(HistoryKind kind) { return kind == HistoryKind::causal ? "causal" : "bidirectional"; }

}  // namespace

std::vector<Session> make_sessions(const InteractionLog& log, const PackOptions& options) {
  const std::size_t users =
      options.users > 0 ? std::min(log.users.size(), static_cast<std::size_t>(options.users)) : log.users.size();
  std::vector<std::vector<Interaction>> by_user(users);
  for (const Interaction& event : log.events)
    if (event.user < users) by_user[event.user].push_back(event);

  std::vector<Session> sessions;
  for (u32 user = 0; user < users; ++user) {
    const std::vector<Interaction> events = in_time_order(std::move(by_user[user]));
    const std::size_t positives = std::min(events.size() / 4, static_cast<std::size_t>(options.positives));
    Session s;
    s.user = user;
    const auto first_positive = events.end() - static_cast<std::ptrdiff_t>(positives);
    const i64 history = std::min<i64>(first_positive - events.begin(), options.max_history);
    s.history.assign(first_positive - history, first_positive);

    for (auto event = first_positive; event != events.end(); ++event) s.candidates.push_back({event->item, true});
    const u64 name = hash_of(options.seed, log.users[user]);
    for (const u32 item : draw_negatives(static_cast<u32>(log.items.size()), events, positives,
                                         HashStream(key_of(name, Meaning::negatives, 0))))
      s.candidates.push_back({item, false});
    HashStream random(key_of(name, Meaning::shuffle, 0));
    for (std::size_t n = s.candidates.size(); n > 1; --n) std::swap(s.candidates[n - 1], s.candidates[random.below(n)]);
    sessions.push_back(std::move(s));
  }
  return sessions;
}

Batch pack_batch(const InteractionLog& log, const std::vector<Session>& sessions, const PackOptions& options,
                 const std::string& source, const std::function<void(i64, i64)>& progress) {
  const i64 count = static_cast<i64>(sessions.size());
  i64 total = 0;
  for (const Session& s : sessions) total += s.rows();

  Batch batch;
  const auto add = [&](const char* name, DType dtype, std::vector<i64> shape) {
    batch.tensors.emplace(name, TensorData(dtype, std::move(shape)));
  };
  add(batch_name::kQ, options.dtype, {total, options.num_heads_q, options.head_dim});
  add(batch_name::kK, options.dtype, {total, options.num_heads_kv, options.head_dim});
  add(batch_name::kV, options.dtype, {total, options.num_heads_kv, options.head_dim_v});
  add(batch_name::kDout, options.dtype, {total, options.num_heads_q, options.head_dim_v});
  add(batch_name::kCuSeqlens, DType::i32, {count + 1});
  for (const char* name : {batch_name::kNumContext, batch_name::kHistoryLen, batch_name::kNumCandidates})
    add(name, DType::i32, {count});
  add(batch_name::kLabels, DType::i32, {total});
  add(batch_name::kItemIds, DType::i64, {total});
  add(batch_name::kUserIds, DType::i64, {count});

  const auto ints = [&](const char* name) { return batch.tensors.at(name).as<i32>(); };
  const auto labels = ints(batch_name::kLabels), cu_seqlens = ints(batch_name::kCuSeqlens);
  const auto item_ids = batch.tensors.at(batch_name::kItemIds).as<i64>();
  const std::vector<i64> users = ids_of(log.users), items = ids_of(log.items);
  std::fill(labels.begin(), labels.end(), -1);
  std::fill(item_ids.begin(), item_ids.end(), -1);
  std::size_t row = 0;
  for (std::size_t b = 0; b < sessions.size(); ++b) {
    const Session& s = sessions[b];
    ints(batch_name::kNumContext)[b] = static_cast<i32>(kContextRows);
    ints(batch_name::kHistoryLen)[b] = static_cast<i32>(s.history.size());
    ints(batch_name::kNumCandidates)[b] = static_cast<i32>(s.candidates.size());
    batch.tensors.at(batch_name::kUserIds).as<i64>()[b] = users[s.user];
    row += static_cast<std::size_t>(kContextRows);
    for (const Interaction& event : s.history) item_ids[row++] = items[event.item];
    for (const Candidate& candidate : s.candidates) {
      labels[row] = candidate.positive ? 1 : 0;
      item_ids[row++] = items[candidate.item];
    }
    cu_seqlens[b + 1] = static_cast<i32>(row);
  }

  if (options.dtype == DType::bf16)
    project<bf16>(log, sessions, options, total, batch, progress);
  else if (options.dtype == DType::f16)
    project<f16>(log, sessions, options, total, batch, progress);
  else
    project<float>(log, sessions, options, total, batch, progress);

  batch.metadata = {{"format", "isoflash-batch"},
                    {"format_version", "1"},
                    {"source", source},
                    {"seed", std::to_string(options.seed)},
                    {"max_history", std::to_string(options.max_history)},
                    {"max_positives", std::to_string(options.positives)},
                    {"history_kind", history_kind_name(options.history_kind)},
                    {"candidate_group_size", "1"}};
  return batch;
}

}  // namespace iso::tool
