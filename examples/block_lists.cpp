// Block lists: two users share one row of 7 blocks, and the lists keep them apart. The result is that of the same users as
// packed sequences with a mask.
#include <isoflash/isoflash.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  const int seqlen = 896, block = 128, heads_q = 2, heads_kv = 1, head_dim = 16;
  // Each user: [prefix][padding][history][candidates]; 256 + 128 positions, then 128 + 256, then a tail of nobody.
  const std::vector<std::int32_t> cu_seqlens{0, 384, 768}, candidate_slot{128, 256};
  std::vector<std::int32_t> padding(seqlen);
  for (int at = 4; at < 154; ++at) padding[at] = 1;
  const auto lists = isoflash::BlockListsHandle::from_sessions({.cu_seqlens = {cu_seqlens.data(), {1, 3}},
                                                                .candidate_slot = {candidate_slot.data(), {1, 2}},
                                                                .padding = {padding.data(), {1, seqlen}},
                                                                .seqlen = seqlen,
                                                                .prefix = 4,
                                                                .block = block});
  if (!lists) return std::fprintf(stderr, "%s\n", lists.error().message().c_str()), 1;

  const auto filled = [&](int heads, float step) {
    std::vector<float> values(static_cast<std::size_t>(seqlen) * heads * head_dim);
    for (std::size_t n = 0; n < values.size(); ++n) values[n] = std::sin(step * static_cast<float>(n));
    return values;
  };
  const std::vector<float> q = filled(heads_q, 1.0f), k = filled(heads_kv, 0.7f), v = filled(heads_kv, 0.3f);
  std::vector<float> by_lists(q.size()), by_mask(q.size());

  const isoflash::Extents of_q{1, seqlen, heads_q, head_dim}, of_kv{1, seqlen, heads_kv, head_dim};
  const isoflash::Problem row{.q = {q.data(), of_q},
                              .k = {k.data(), of_kv},
                              .v = {v.data(), of_kv},
                              .out = {by_lists.data(), of_q},
                              .blocks = lists->blocks()};  // copied by the plan
  const auto plan = isoflash::Plan::create(row);
  if (!plan) return std::fprintf(stderr, "%s\n", plan.error().message().c_str()), 1;
  if (const auto done = plan->forward(row); !done) return std::fprintf(stderr, "%s\n", done.error().message().c_str()), 1;

  // The same without lists: each user a packed sequence, the tail a third one without any valid position.
  const std::vector<std::int32_t> starts{0, 384, 768, seqlen};
  const std::vector<std::int32_t> context{4, 4, 0}, history{252, 124, 0}, begin{154, 4, 0}, end{256, 128, 0};
  const std::vector<std::int32_t> candidates_at{256, 128, 0}, candidates{128, 256, 0};
  const isoflash::Extents packed_q{seqlen, heads_q, head_dim}, packed_kv{seqlen, heads_kv, head_dim};
  const isoflash::Problem users{.q = {q.data(), packed_q},
                                .k = {k.data(), packed_kv},
                                .v = {v.data(), packed_kv},
                                .out = {by_mask.data(), packed_q},
                                .cu_seqlens_q = starts,
                                .cu_seqlens_kv = starts,
                                .mask = {.num_context = context,
                                         .history_len = history,
                                         .num_candidates = candidates,
                                         .history_begin = begin,
                                         .history_end = end,
                                         .candidate_begin = candidates_at}};
  const auto packed_plan = isoflash::Plan::create(users);
  if (!packed_plan) return std::fprintf(stderr, "%s\n", packed_plan.error().message().c_str()), 1;
  if (!packed_plan->forward(users)) return 1;

  float difference = 0;
  for (std::size_t n = 0; n < by_mask.size(); ++n) difference = std::fmax(difference, std::fabs(by_lists[n] - by_mask[n]));
  std::printf("visible pairs: %lld by lists, %lld by masks; largest difference of the outputs %.1e\n",
              static_cast<long long>(plan->visible_pairs()), static_cast<long long>(packed_plan->visible_pairs()),
              difference);
  return plan->visible_pairs() == packed_plan->visible_pairs() && difference < 1e-5f ? 0 : 1;
}
