// One user's session in C++: 2 context tokens, 5 events of history and 3 candidates that must not see each other.
#include <isoflash/isoflash.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const int seqlen = 10, heads_q = 4, heads_kv = 2, head_dim = 16;
  std::vector<float> q(seqlen * heads_q * head_dim), k(seqlen * heads_kv * head_dim), v(k.size()), out(q.size());
  for (std::size_t n = 0; n < q.size(); ++n) q[n] = std::sin(static_cast<float>(n));
  for (std::size_t n = 0; n < k.size(); ++n) k[n] = std::cos(static_cast<float>(n)), v[n] = std::sin(0.5f * n);

  const isoflash::Problem problem{.q = {q.data(), {1, seqlen, heads_q, head_dim}},
                                  .k = {k.data(), {1, seqlen, heads_kv, head_dim}},
                                  .v = {v.data(), {1, seqlen, heads_kv, head_dim}},
                                  .out = {out.data(), {1, seqlen, heads_q, head_dim}},
                                  .mask = {.num_context = 2, .history_len = 5, .num_candidates = 3}};

  const isoflash::Result<isoflash::Plan> plan = isoflash::Plan::create(problem);  // everything is checked here
  if (!plan) {
    std::fprintf(stderr, "%s\n", plan.error().message().c_str());
    return 1;
  }
  if (const isoflash::Result<void> done = plan->forward(problem); !done) {
    std::fprintf(stderr, "%s\n", done.error().message().c_str());
    return 1;
  }
  std::printf("kernel %s, %lld visible pairs\n", plan->kernel().c_str(), static_cast<long long>(plan->visible_pairs()));
  for (int i = seqlen - 3; i < seqlen; ++i)
    std::printf("candidate in row %d: out[0] = %+.6f\n", i, out[i * heads_q * head_dim]);
  return 0;
}
