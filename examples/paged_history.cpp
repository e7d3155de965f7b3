// Scoring candidates against histories that were computed before and lie in pages: each user's keys and values are wherever
// the block table says, and those of the candidates are passed beside them, so nothing is copied or written to the cache.
#include <isoflash/isoflash.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  const int users = 2, candidates = 6, page_size = 16, num_pages = 5, heads_q = 4, heads_kv = 2, head_dim = 32;
  const std::vector<std::int32_t> history{40, 9};                   // events that each user has in the cache
  const std::vector<std::int32_t> block_table{3, 0, 4, 1, -1, -1};  // 3 pages at most a user; -1 is never read

  const auto filled = [](std::size_t size, float step) {
    std::vector<float> values(size);
    for (std::size_t n = 0; n < size; ++n) values[n] = std::sin(step * static_cast<float>(n));
    return values;
  };
  const std::size_t page = static_cast<std::size_t>(page_size) * heads_kv * head_dim;
  std::vector<float> k_pages = filled(num_pages * page, 0.7f), v_pages = filled(num_pages * page, 0.3f);
  const std::size_t rows = static_cast<std::size_t>(users) * candidates;
  const std::vector<float> q = filled(rows * heads_q * head_dim, 1.0f);
  const std::vector<float> k_new = filled(rows * heads_kv * head_dim, 0.2f),
                           v_new = filled(rows * heads_kv * head_dim, 0.9f);
  std::vector<float> out(q.size());

  const isoflash::Extents of_q{users, candidates, heads_q, head_dim}, of_new{users, candidates, heads_kv, head_dim};
  const isoflash::Extents of_pages{num_pages, page_size, heads_kv, head_dim};
  const isoflash::Problem problem{
      .q = {q.data(), of_q},
      .k = {k_pages.data(), of_pages},
      .v = {v_pages.data(), of_pages},
      .out = {out.data(), of_q},
      .seqused_kv = history,
      .mask = {.num_candidates = candidates},  // the last keys of each sequence, and those are the new ones
      .block_table = {block_table.data(), {users, 3}},
      .k_new = {k_new.data(), of_new},
      .v_new = {v_new.data(), of_new}};
  const auto plan = isoflash::Plan::create(problem);
  if (!plan) return std::fprintf(stderr, "%s\n", plan.error().message().c_str()), 1;
  if (const auto done = plan->forward(problem); !done)
    return std::fprintf(stderr, "%s\n", done.error().message().c_str()), 1;
  std::printf("%lld visible pairs: every candidate sees its user's history and itself\n",
              static_cast<long long>(plan->visible_pairs()));

  // Whatever lies in pages that nobody uses, and behind a user's last event, has no influence on any bit.
  const std::vector<float> before = out;
  for (std::size_t n = 2 * page; n < 3 * page; ++n) k_pages[n] = v_pages[n] = NAN;                     // page 2
  for (std::size_t n = page + page / page_size * 9; n < 2 * page; ++n) k_pages[n] = v_pages[n] = NAN;  // page 1, from 9 on
  if (const auto done = plan->forward(problem); !done)
    return std::fprintf(stderr, "%s\n", done.error().message().c_str()), 1;
  std::printf("same bits with NaN in unused memory: %s\n", out == before ? "yes" : "no");
  return out == before ? 0 : 1;
}
