// Paged keys and values: which pages a sequence uses.
#pragma once

#include <vector>

#include "core/mask_arrays.h"
#include "core/problem.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

// Keys that the pages of one sequence hold; at most what a sequence can have. Shape and dtype of block_table are checked.
Expected<i32> read_page_capacity(const isoflash_problem& descriptor, const Problem& p);

// Copies the pages of the keys in use to `arrays` and lets the sequences, whose seqlen_cached is set, point to them.
Expected<void> read_pages(const isoflash_problem& descriptor, const Problem& p, std::vector<Sequence>& sequences,
                          MaskArrays& arrays);

}  // namespace iso
