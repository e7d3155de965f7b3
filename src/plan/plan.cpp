#include "plan/plan.h"

#include <limits>
#include <utility>

#include "base/math.h"
#include "plan/visible_pairs.h"

namespace iso {

namespace {

// Visible pairs per query head; the mean where heads see different keys.
i64 visible_pairs(const Plan& plan) {
  bool alike = true;
  for (const Sequence& s : plan.sequences) alike = alike && heads_see_alike(s);
  const i64 heads = alike ? min_of<i64>(plan.problem.num_heads_q, 1) : plan.problem.num_heads_q;
  i64 pairs = 0;
  for (const Sequence& s : plan.sequences)
    for (i64 head = 0; head < heads; ++head)
      if (__builtin_add_overflow(pairs, count_visible_pairs(s, head), &pairs)) return std::numeric_limits<i64>::max();
  return heads == 0 ? 0 : pairs / heads;
}

}  // namespace

Plan make_plan(const Problem& problem, std::vector<Sequence> sequences, MaskArrays mask_arrays,
               const ForwardTensors& layout) {
  Plan plan;
  plan.problem = problem;
  plan.sequences = std::move(sequences);
  plan.mask_arrays = std::move(mask_arrays);
  plan.layout = layout;
  plan.visible_pairs = visible_pairs(plan);
  return plan;
}

}  // namespace iso
