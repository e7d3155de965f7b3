#include "plan/plan.h"

#include <limits>
#include <utility>

#include "plan/visible_pairs.h"

namespace iso {

Plan make_plan(const Problem& problem, std::vector<Sequence> sequences, const ForwardTensors& layout) {
  Plan plan;
  plan.problem = problem;
  plan.sequences = std::move(sequences);
  plan.layout = layout;
  for (const Sequence& s : plan.sequences)
    if (__builtin_add_overflow(plan.visible_pairs, count_visible_pairs(s), &plan.visible_pairs)) {
      plan.visible_pairs = std::numeric_limits<i64>::max();
      break;
    }
  return plan;
}

}  // namespace iso
