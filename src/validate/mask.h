// The mask of each sequence, every default resolved as isoflash_mask says.
#pragma once

#include <vector>

#include "core/sequence.h"
#include "errors/error.h"
#include "isoflash/isoflash.h"

namespace iso {

// Fills the masks of `sequences`, whose lengths are set.
Expected<void> resolve_masks(const isoflash_mask& descriptor, std::vector<Sequence>& sequences);

// The first field of the mask that is not at its default, query_offset aside; null if there is none.
const char* first_given(const isoflash_mask& descriptor);

}  // namespace iso
