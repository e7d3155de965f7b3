// Explicit key intervals of each query row (row_intervals of the C ABI).
#pragma once

#include <vector>

#include "core/mask_arrays.h"
#include "core/problem.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

// Copies the intervals of the rows in use to `arrays`, empty ones last, and lets the sequences point to them. Does nothing
// if none are given.
Expected<void> read_row_intervals(const isoflash_problem& descriptor, const Problem& p, std::vector<Sequence>& sequences,
                                  MaskArrays& arrays);

}  // namespace iso
