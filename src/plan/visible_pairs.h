// How much work a plan is: the visible (query, key) pairs of a sequence. With a mask alone, in closed form, so that
// planning a batch of long sequences costs nothing per row.
#pragma once

#include "core/sequence.h"

namespace iso {

// The pairs of one query head for which visible() of core/sequence.h is true.
i64 count_visible_pairs(const Sequence& s, i64 head);

// Is that number the same for all heads, because they share intervals and block lists?
bool heads_see_alike(const Sequence& s);

}  // namespace iso
