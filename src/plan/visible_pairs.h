// How much work a plan is: the visible (query, key) pairs of a sequence in closed form, so that planning a batch of long
// sequences costs nothing per row.
#pragma once

#include "core/sequence.h"

namespace iso {

// Equals visible_pairs(s.mask, query_positions(s)) of core/mask.h, which counts row by row.
i64 count_visible_pairs(const Sequence& s);

}  // namespace iso
