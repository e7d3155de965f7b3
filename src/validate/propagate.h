// Returns from the calling function when a step failed.
#pragma once

#include "errors/error.h"

#define ISO_RETURN_IF_ERROR(step)                                                           \
  do {                                                                                      \
    if (auto outcome = (step); !outcome) return tl::unexpected(std::move(outcome).error()); \
  } while (false)
