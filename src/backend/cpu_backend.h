// The CPU backend (src/cpu) behind the common interface.
#pragma once

#include "backend/backend.h"

namespace iso {

const Backend& cpu_backend();

// The CPU levels compiled in, lowest first, and the one in use (src/cpu/cpu.h).
int cpu_level_count();
const char* cpu_level_name(int index);
bool cpu_level_available(int index);
const char* cpu_level_in_use();

}  // namespace iso
