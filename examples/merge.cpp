// Attention over two parts of the keys, merged: here a long history that was attended to once, and today's events. The
// gradient goes back through the merge to each part.
#include <isoflash/isoflash.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

int main() {
  const int rows = 12, old_keys = 90, new_keys = 10, keys = old_keys + new_keys, heads = 2, head_dim = 32;
  const auto filled = [](std::size_t size, float step) {
    std::vector<float> values(size);
    for (std::size_t n = 0; n < size; ++n) values[n] = std::sin(step * static_cast<float>(n));
    return values;
  };
  const std::size_t row = static_cast<std::size_t>(heads) * head_dim;
  const std::vector<float> q = filled(rows * row, 1.0f), k = filled(keys * row, 0.7f), v = filled(keys * row, 0.3f);
  const std::vector<float> dout = filled(rows * row, 0.1f);

  const isoflash::Extents of_q{1, rows, heads, head_dim}, of_lse{1, heads, rows};
  struct Result {
    std::vector<float> out, lse, dout, dlse, dq;
  };
  Result whole, first, second;
  for (Result* r : {&whole, &first, &second}) {
    r->out.resize(rows * row);
    r->lse.resize(static_cast<std::size_t>(rows) * heads);
    *r = {r->out, r->lse, r->out, r->lse, r->out};
  }

  // Attention over keys [begin, end), and a plan to go back through.
  const auto attend = [&](int begin, int end, Result& r) -> std::optional<isoflash::Plan> {
    const isoflash::Extents of_keys{1, end - begin, heads, head_dim};
    const isoflash::Problem problem{.q = {q.data(), of_q},
                                    .k = {k.data() + begin * row, of_keys},
                                    .v = {v.data() + begin * row, of_keys},
                                    .out = {r.out.data(), of_q},
                                    .lse = {r.lse.data(), of_lse}};  // what merging weighs the parts by
    auto plan = isoflash::Plan::create(problem);
    if (!plan || !plan->forward(problem)) return std::nullopt;
    return std::move(*plan);
  };
  const auto plan_whole = attend(0, keys, whole);
  const auto plan_first = attend(0, old_keys, first), plan_second = attend(old_keys, keys, second);
  if (!plan_whole || !plan_first || !plan_second) return std::fprintf(stderr, "a plan or its forward failed\n"), 1;

  Result merged = whole;
  const std::vector<isoflash::Tensor> outs{{first.out.data(), of_q}, {second.out.data(), of_q}};
  const std::vector<isoflash::Tensor> lses{{first.lse.data(), of_lse}, {second.lse.data(), of_lse}};
  const isoflash::Tensor out{merged.out.data(), of_q}, lse{merged.lse.data(), of_lse};
  if (const auto done = isoflash::merge({outs, lses, out, lse}); !done)
    return std::fprintf(stderr, "%s\n", done.error().message().c_str()), 1;

  // Back: first through the merge, then each part with its own gradients.
  const std::vector<isoflash::Tensor> douts{{first.dout.data(), of_q}, {second.dout.data(), of_q}};
  const std::vector<isoflash::Tensor> dlses{{first.dlse.data(), of_lse}, {second.dlse.data(), of_lse}};
  const auto through = isoflash::merge_backward(
      {.outs = outs, .lses = lses, .out = out, .lse = lse, .dout = {dout.data(), of_q}, .douts = douts, .dlses = dlses});
  if (!through) return std::fprintf(stderr, "%s\n", through.error().message().c_str()), 1;
  const auto back = [&](const isoflash::Plan& plan, int begin, int end, const isoflash::Tensor& gradient,
                        const isoflash::Tensor& lse_gradient, Result& r) {
    const isoflash::Extents of_keys{1, end - begin, heads, head_dim};
    return plan.backward({.q = {q.data(), of_q},
                          .k = {k.data() + begin * row, of_keys},
                          .v = {v.data() + begin * row, of_keys},
                          .out = {r.out.data(), of_q},
                          .lse = {r.lse.data(), of_lse},
                          .dout = gradient,
                          .dlse = lse_gradient,
                          .dq = {r.dq.data(), of_q}});
  };
  const isoflash::Tensor of_dout{dout.data(), of_q};
  if (!back(*plan_whole, 0, keys, of_dout, {}, whole) || !back(*plan_first, 0, old_keys, douts[0], dlses[0], first) ||
      !back(*plan_second, old_keys, keys, douts[1], dlses[1], second))
    return std::fprintf(stderr, "a backward failed\n"), 1;

  float out_difference = 0, dq_difference = 0;
  for (std::size_t n = 0; n < whole.out.size(); ++n) {
    out_difference = std::max(out_difference, std::abs(merged.out[n] - whole.out[n]));
    dq_difference = std::max(dq_difference, std::abs(first.dq[n] + second.dq[n] - whole.dq[n]));
  }
  std::printf("largest difference to attention over all keys: out %.1e, dq %.1e\n", out_difference, dq_difference);
  return out_difference < 1e-5f && dq_difference < 1e-5f ? 0 : 1;
}
