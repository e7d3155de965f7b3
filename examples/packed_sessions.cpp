// A training step on real-life shapes: three users' sessions of different lengths, packed one after the other without
// padding, each with its own numbers of history events and candidates; forward, then gradients.
#include <isoflash/isoflash.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

int main() {
  const int heads_q = 5, heads_kv = 1, head_dim = 32, num_context = 2;
  const std::vector<std::int32_t> history{100, 7, 0}, candidates{16, 4, 8};
  std::vector<std::int32_t> cu_seqlens{0};
  for (std::size_t user = 0; user < history.size(); ++user)
    cu_seqlens.push_back(cu_seqlens.back() + num_context + history[user] + candidates[user]);
  const int total = cu_seqlens.back();

  const auto filled = [&](int heads, float step) {
    std::vector<float> values(static_cast<std::size_t>(total) * heads * head_dim);
    for (std::size_t n = 0; n < values.size(); ++n) values[n] = std::sin(step * static_cast<float>(n));
    return values;
  };
  const std::vector<float> q = filled(heads_q, 1.0f), k = filled(heads_kv, 0.7f), v = filled(heads_kv, 0.3f);
  const std::vector<float> dout = filled(heads_q, 0.1f);
  std::vector<float> out(q.size()), lse(static_cast<std::size_t>(heads_q) * total);
  std::vector<float> dq(q.size()), dk(k.size()), dv(v.size());

  const isoflash::Extents of_q{total, heads_q, head_dim}, of_kv{total, heads_kv, head_dim};
  const isoflash::Problem problem{
      .q = {q.data(), of_q},
      .k = {k.data(), of_kv},
      .v = {v.data(), of_kv},
      .out = {out.data(), of_q},
      .lse = {lse.data(), {heads_q, total}},
      .cu_seqlens_q = cu_seqlens,
      .cu_seqlens_kv = cu_seqlens,
      .mask = {.num_context = num_context, .history_len = history, .num_candidates = candidates}};
  const auto plan = isoflash::Plan::create(problem);
  if (!plan) return std::fprintf(stderr, "%s\n", plan.error().message().c_str()), 1;

  isoflash::Workspace workspace;  // kept from step to step; one per thread
  const auto forward = plan->forward(problem, workspace);
  if (!forward) return std::fprintf(stderr, "%s\n", forward.error().message().c_str()), 1;
  const auto backward = plan->backward({.q = problem.q,
                                        .k = problem.k,
                                        .v = problem.v,
                                        .out = problem.out,
                                        .lse = problem.lse,
                                        .dout = {dout.data(), of_q},
                                        .dq = {dq.data(), of_q},
                                        .dk = {dk.data(), of_kv},
                                        .dv = {dv.data(), of_kv}},
                                       workspace);
  if (!backward) return std::fprintf(stderr, "%s\n", backward.error().message().c_str()), 1;

  const auto sum_of_squares = [](const std::vector<float>& x) {
    return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  };
  std::printf("%d rows of 3 users, %lld visible pairs of %lld\n", total, static_cast<long long>(plan->visible_pairs()),
              static_cast<long long>(total) * total);
  std::printf("squared norms: out %.4f, dq %.4f, dk %.4f, dv %.4f\n", sum_of_squares(out), sum_of_squares(dq),
              sum_of_squares(dk), sum_of_squares(dv));
  return std::isfinite(sum_of_squares(dk)) ? 0 : 1;
}
