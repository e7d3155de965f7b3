// From a log of interactions to a batch of ranker sequences.
//
// One sequence per user:
//
//   context     2 rows: who the user is, and what the user's ratings are like
//   history     the user's items in time order, without the positives, at most max_history of the latest
//   candidates  the user's latest items (the positives) and as many items that the user never met, shuffled
//
// An item that a user met several times counts once, at its last time. The positives are the latest `positives` items of a
// user with 4 * `positives` or more, else the latest quarter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "batch.h"
#include "core/mask.h"
#include "interactions.h"

namespace iso::tool {

struct PackOptions {
  i64 users = 0;  // the first so many of the log; 0: all
  i64 num_heads_q = 4, num_heads_kv = 2, head_dim = 128, head_dim_v = 128;
  DType dtype = DType::bf16;
  u64 seed = 1;
  i64 max_history = 1022;
  i64 positives = 64;
  HistoryKind history_kind = HistoryKind::bidirectional;
};

inline constexpr i64 kContextRows = 2;

struct Candidate {
  u32 item = 0;
  bool positive = false;
};

struct Session {
  u32 user = 0;
  std::vector<Interaction> history;
  std::vector<Candidate> candidates;

  i64 rows() const { return kContextRows + static_cast<i64>(history.size() + candidates.size()); }
};

std::vector<Session> make_sessions(const InteractionLog& log, const PackOptions& options);

// The batch of docs/formats.md. Equal input gives equal bytes on every machine: only integers are summed.
//
// Every row is a vector of 32 whole numbers, 2 * main + detail + place, hashed from
//
//   context 0   user            how many items the user met      -
//   context 1   user (again)    the user's mean rating           -
//   history     item            its rating                       how long ago
//   candidate   item            -                                user
//
// and q, k, v and dout are that vector times fixed seeded matrices, one per tensor and head. Elements of k, v and dout have
// standard deviation 1, those of q 2, so that scale * q.k has standard deviation 2, as in trained rankers: over a few
// hundred keys the softmax is neither flat nor a single key.
Batch pack_batch(const InteractionLog& log, const std::vector<Session>& sessions, const PackOptions& options,
                 const std::string& source, const std::function<void(i64 done, i64 total)>& progress);

}  // namespace iso::tool
